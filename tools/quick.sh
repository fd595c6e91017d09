#!/usr/bin/env bash
# The inner loop: builds, lints, and runs the tests of the packages and files that a change touches. The change is
# everything since BASE, by default since the last commit; if nothing changed since then, it is the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."

base=${BASE:-HEAD}
changed() { { git diff --name-only --diff-filter=d "$base" && git ls-files --others --exclude-standard; } | sort -u; }
files=$(changed)
if [[ -z $files && -z ${BASE:-} ]]; then
	base=HEAD~1
	files=$(changed)
fi

export MILLRACE=$PWD/build/millrace # for the tests that run it
go build ./...
go build -o build/millrace ./cmd/millrace
tools/lint.sh

# Packages of changed Go files, and of changed test data. The module in tools is another one.
packages=()
while IFS= read -r dir; do
	dir=${dir%%/testdata*}
	compgen -G "$dir/*.go" >/dev/null && packages+=("./$dir")
done < <(grep -E '\.go$|/testdata/' <<<"$files" | grep -v '^tools/' | xargs -r -n1 dirname | sort -u)
mapfile -t packages < <(printf '%s\n' "${packages[@]:-}" ./verify/archtest | sed '/^$/d' | sort -u)
echo "testing ${packages[*]}"
go test -short -vet=off "${packages[@]}"

if grep -q '^clients/python/' <<<"$files"; then
	tools/venv.sh .venv tools/requirements-test.txt
	.venv/bin/python -m pytest -q -p no:cacheprovider clients/python
fi
mapfile -t runs < <(grep -E '^e2e/test_\w+\.py$' <<<"$files" || true)
if ((${#runs[@]})); then
	tools/venv.sh .venv-e2e e2e/requirements.txt
	etcd=$(tools/etcd.sh)
	MILLRACE_ETCD=$etcd .venv-e2e/bin/python -m pytest -q -p no:cacheprovider -m "not long" "${runs[@]}"
fi

#!/usr/bin/env bash
# Runs all tests, for `make test` and .ci/run. Every step runs; testreport adds up the results and decides. LONG=1 also
# runs the long variants: the tests of e2e that are marked so, and every encoding on the emulated processor.
set -uo pipefail
cd "$(dirname "$0")/.."

# Four packages at a time on two cores: many tests wait for processes and for time limits.
packages_at_once=${TEST_P:-4}
go_test="go test -json -vet=off -timeout 10m"
short=-short only="not long"
[[ -z ${LONG:-} ]] || short="" only=""

steps=(
	"check:gofmt=tools/lint.sh gofmt"
	"check:vet=tools/lint.sh vet"
	"check:staticcheck=tools/lint.sh staticcheck"
	"go:go=$go_test -p $packages_at_once ./..."
)

if [[ $(git rev-parse --show-toplevel 2>/dev/null) -ef . ]]; then
	steps+=("check:commit-subjects=tools/subjects.sh")
else
	steps+=("skip:commit-subjects=needs git-checkout: clone the project with git")
fi

# The tests of the client and of the demo wait for most of their time, so they run beside the golden tests of arm64.
steps+=(
	"check:python-environment=tools/venv.sh .venv tools/requirements-test.txt"
	"check:lint-environment=tools/venv.sh .venv-lint tools/requirements-lint.txt"
	"check:build=go build -o build/millrace ./cmd/millrace"
	'pytest&:python=.venv/bin/python -m pytest -q -p no:cacheprovider --junitxml="$JUNIT" clients/python'
	'pytest&:demo=.venv/bin/python -m pytest -q -p no:cacheprovider --junitxml="$JUNIT" examples/demo'
	"check&:types=cd clients/python && ../../.venv-lint/bin/python -m mypy"
	"check:ruff=tools/lint.sh ruff"
)

# Plans, digests and tokens must be equal on every machine. Golden tests also run on arm64, for which the compiler fuses
# x*y+z.
if command -v qemu-aarch64-static >/dev/null; then
	golden=$(grep -rlE '^func Test\w*Golden' --include='*_test.go' . | xargs -n1 dirname | sort -u | tr '\n' ' ')
	steps+=("go:arm64=GOARCH=arm64 CGO_ENABLED=0 $go_test $short -exec qemu-aarch64-static -run Golden $golden")
else
	steps+=("skip:arm64-golden=needs qemu-aarch64-static: install the emulator of arm64 (on Debian: qemu-user-static)")
fi

# Tests of the lease need etcd, which is built once.
if built=$(tools/etcd.sh); then
	export MILLRACE_ETCD=$built
else
	echo "etcd could not be built; the tests that need it are skipped" >&2
fi

steps+=(
	"check:e2e-environment=tools/venv.sh .venv-e2e e2e/requirements.txt"
	# Four files at a time, because tests wait, and in the order of their names. The tests of a file share their runs.
	'pytest:e2e=.venv-e2e/bin/python -m pytest -q -p no:cacheprovider -n 4 --dist loadfile --no-loadscope-reorder \
		--junitxml="$JUNIT" -m "'"$only"'" e2e'
)

unset PYTHONDONTWRITEBYTECODE # many tests start Python; without bytecode each one compiles the client again

mkdir -p build
export MILLRACE=$PWD/build/millrace # for the tests that run it
go build -o build/testreport ./verify/testreport || exit 1
exec build/testreport "${steps[@]}" </dev/null

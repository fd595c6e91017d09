#!/usr/bin/env bash
# Checks the code without running it, for `make lint`, `make quick` and `make test`.
#
#	lint.sh STEP...   STEP is one of: gofmt vet staticcheck ruff; all of them by default
set -euo pipefail
cd "$(dirname "$0")/.."

gofmt_() {
	local out
	out=$(gofmt -l .)
	[[ -z $out ]] || { printf 'gofmt would change these files (run gofmt -w):\n%s\n' "$out"; return 1; }
}

staticcheck_() {
	local program
	program=$(tools/staticcheck.sh)
	"$program" ./...
}

ruff_() {
	tools/venv.sh .venv-lint tools/requirements-lint.txt
	.venv-lint/bin/ruff check --quiet .
}

(($#)) || set -- gofmt vet staticcheck ruff
for step in "$@"; do
	case $step in
		vet) go vet ./... ;;
		gofmt | staticcheck | ruff) "${step}_" ;;
		*)
			echo "lint.sh: no step $step; there are gofmt, vet, staticcheck and ruff" >&2
			exit 2
			;;
	esac
done

#!/bin/sh
# Measures the whole way from files to the trainer. The first run makes the environment .venv-bench. Arguments go to
# bench/stream.py.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
venv=${MILLRACE_BENCH_VENV:-$root/.venv-bench}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import tiktoken, tokenizers, numpy, zstandard' 2>/dev/null ||
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
		tiktoken==0.14.0 tokenizers==0.22.2 zstandard==0.25.0 numpy==2.4.6

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT INT TERM
(cd "$root" && go build -o "$tools/" ./cmd/millrace ./bench/tokenbench)
"$venv/bin/python" "$root/bench/stream.py" --millrace "$tools/millrace" --tokenbench "$tools/tokenbench" "$@"

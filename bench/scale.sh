#!/bin/sh
# Measures how cost, memory and start grow with sources, shards and ranks. The first run makes the environment
# .venv-bench. Arguments go to bench/scale.py.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
venv=${MILLRACE_BENCH_VENV:-$root/.venv-bench}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import tiktoken, tokenizers, numpy, zstandard, pyarrow' 2>/dev/null ||
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
		tiktoken==0.14.0 tokenizers==0.22.2 zstandard==0.25.0 numpy==2.4.6 pyarrow==26.0.1

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT INT TERM
(cd "$root" && go build -o "$tools/" ./cmd/millrace)
"$venv/bin/python" "$root/bench/scale.py" --millrace "$tools/millrace" "$@"

#!/bin/sh
# Runs Millrace beside other loaders (bench/compare.py). The first run makes two environments: .venv-bench, and one for
# the peers outside the checkout, with PyTorch (4 GB). Arguments go to bench/compare.py.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
peers=${MILLRACE_PEERS_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace/venv-peers}
"$root/bench/venv-peers.sh" "$peers"
"$root/bench/scale.sh" --sections '' # makes .venv-bench

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT INT TERM
(cd "$root" && go build -o "$tools/" ./cmd/millrace ./bench/tokenbench)
"$tools/tokenbench" -export gpt2 >"$tools/gpt2"
"${MILLRACE_BENCH_VENV:-$root/.venv-bench}/bin/python" "$root/bench/compare.py" --millrace "$tools/millrace" \
	--python "$peers/bin/python" --vocabulary "$tools/gpt2" "$@"

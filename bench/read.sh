#!/bin/sh
# Reads the files of each format with our reader and with the format's own (bench/read.py). The first run makes the
# environment of the peers outside the checkout, with PyTorch (4 GB). Arguments go to bench/read.py.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
peers=${MILLRACE_PEERS_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace/venv-peers}
"$root/bench/venv-peers.sh" "$peers"
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT INT TERM
(cd "$root" && go build -o "$tools/" ./bench/readbench)
python3 "$root/bench/read.py" --readbench "$tools/readbench" --python "$peers/bin/python" \
	--data "$root/build/bench-read" "$@"

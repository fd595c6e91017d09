#!/bin/sh
# Measures the hand-over of batches beside other loaders (bench/delivery.py). The first run makes the environment of the
# peers outside the checkout, with PyTorch (4 GB). Arguments go to bench/delivery.py.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
peers=${MILLRACE_PEERS_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace/venv-peers}
"$root/bench/venv-peers.sh" "$peers"

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT INT TERM
(cd "$root" && go build -o "$tools/" ./sidecar/sidecartest/server)
"$peers/bin/python" "$root/bench/delivery.py" --python "$peers/bin/python" --server "$tools/server" "$@"

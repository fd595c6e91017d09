#!/bin/sh
# Measures failover on real processes. Arguments go to bench/failover. The first run makes the environment .venv-bench,
# and outside the checkout another one for the peers: about 4 GB for PyTorch and its dependencies.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
venv=${MILLRACE_BENCH_VENV:-$root/.venv-bench}
peers=${MILLRACE_PEERS_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace/venv-peers}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import numpy' 2>/dev/null ||
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6

case " $* " in
*" --sections "*peers* | *"--sections="*peers*) wanted=yes ;;
*" --sections"*) wanted= ;;
*) wanted=yes ;;
esac
[ -z "$wanted" ] || "$root/bench/venv-peers.sh" "$peers"

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT INT TERM
(cd "$root" && go build -o "$build/millrace" ./cmd/millrace)
"$venv/bin/python" "$root/bench/failover" --millrace "$build/millrace" --peers-python "$peers/bin/python" "$@"

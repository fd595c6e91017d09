#!/bin/sh
# Measures runs on several hosts. Arguments go to bench/cluster. The first run makes the environment .venv-e2e, because
# the hosts are those of the end-to-end tests, and builds etcd. Sections with peers make the environments of the peers
# outside the checkout: memory that of PyTorch (6 GB), rivals those of TensorFlow (1.6 GB) and Ray, ray that of Ray.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace
sections=$(printf '%s ' "$@" | sed -n 's/.*--sections[ =]\([^ ]*\).*/\1/p')
needs() { # whether one of these sections is measured
	for one; do
		case ",${sections:-$one}," in *",$one,"*) return 0 ;; esac
	done
	return 1
}
peer() { # peer NAME REQUIREMENTS: sets `python` to that of the environment, or to nothing if it cannot be made
	mkdir -p "$cache"
	python=$cache/venv-$1/bin/python
	flock "$cache/venv-$1.lock" "$root/tools/venv.sh" "$cache/venv-$1" "$root/$2" && return
	echo "cluster.sh: the packages of $2 cannot be installed, and are left out" >&2
	python=
}

"$root/tools/venv.sh" "$root/.venv-e2e" "$root/e2e/requirements.txt"
etcd=$("$root/tools/etcd.sh")
torch= tensorflow= ray=
needs memory && peer torch bench/requirements-torch.txt && torch=$python
needs rivals && peer tensorflow bench/requirements-tensorflow.txt && tensorflow=$python
needs rivals ray && peer ray tools/requirements-ray.txt && ray=$python

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT INT TERM
(cd "$root" && go build -o "$build/" ./cmd/millrace ./bench/tokenbench)
"$build/tokenbench" -export gpt2 >"$build/gpt2"
"$root/.venv-e2e/bin/python" "$root/bench/cluster" --millrace "$build/millrace" --etcd "$etcd" --torch "$torch" \
	--tensorflow "$tensorflow" --ray "$ray" --vocabulary "$build/gpt2" "$@"

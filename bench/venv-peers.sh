#!/bin/sh
# venv-peers.sh DIR: makes the environment of other loaders, once: about 4 GB for PyTorch and its dependencies. It
# names each line of requirements-peers.txt that cannot be installed, and the comparisons leave its peer out.
set -eu

dir=$1 pins=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)/requirements-peers.txt
[ -x "$dir/bin/python" ] && cmp -s "$pins" "$dir/.pins" && exit 0
[ -x "$dir/bin/python" ] || python3 -m venv "$dir"
grep -v '^#' "$pins" | while read -r line; do
	# shellcheck disable=SC2086 # several packages a line
	"$dir/bin/python" -m pip install --quiet --disable-pip-version-check $line ||
		echo "venv-peers.sh: cannot install $line; the comparison leaves it out" >&2
done
cp "$pins" "$dir/.pins"

#!/usr/bin/env bash
# venv.sh DIR REQUIREMENTS: makes a Python environment, and makes it again after a change of the pins.
set -euo pipefail

dir=$1 pins=$2
stamp=$dir/.pins
python=${PYTHON:-python3}
want=$(cat "$(dirname "$0")"/requirements-test.txt "$pins") # because REQUIREMENTS may include it

[[ -x $dir/bin/python && -f $stamp && $(cat "$stamp") == "$want" ]] && exit 0

command -v "$python" >/dev/null || { echo "venv.sh: $python is not installed" >&2; exit 1; }
rm -rf "$dir"
"$python" -m venv "$dir" || {
	echo "venv.sh: $python cannot make an environment (on Debian: apt-get install python3-venv)" >&2
	exit 1
}
"$dir/bin/python" -m pip install --quiet --disable-pip-version-check -r "$pins"
printf '%s\n' "$want" >"$stamp"

#!/usr/bin/env bash
# adapters.sh DIR: makes the Python environment of `make test-adapters`, and installs again after a change of the pins.
# The first time it downloads about 6 GB, most of it PyTorch.
set -euo pipefail

dir=$1 here=$(dirname "$0")
pins=$here/requirements-adapters.txt optional=$here/requirements-adapters-optional.txt
want=$(cat "$here/requirements-test.txt" "$pins" "$optional")

mkdir -p "$dir"
exec 9>"$dir/.lock"
flock 9 # another checkout may use the same environment
[[ -x $dir/bin/python && -f $dir/.pins && $(cat "$dir/.pins") == "$want" ]] && exit 0

python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "adapters.sh: $python is not installed" >&2; exit 1; }
[[ -x $dir/bin/python ]] || "$python" -m venv "$dir" || {
	echo "adapters.sh: $python cannot make an environment (on Debian: apt-get install python3-venv)" >&2
	exit 1
}
pip=("$dir/bin/python" -m pip install --quiet --disable-pip-version-check)
echo "adapters.sh: installing PyTorch and the frameworks in $dir"
"${pip[@]}" -r "$pins"
while read -r package; do
	"${pip[@]}" --no-deps "$package" || echo "adapters.sh: cannot install $package; its tests will be skipped" >&2
done < <(grep -v '^ *#' "$optional")
printf '%s\n' "$want" >"$dir/.pins"

#!/usr/bin/env bash
# Runs the client's tests on every supported Python of this machine: from PATH, and from ~/.pyenv. It names those that
# are missing. The environments stay in build/pythons.
set -uo pipefail
cd "$(dirname "$0")/.."

export MILLRACE=${MILLRACE:-$PWD/build/millrace}
go build -o build/millrace ./cmd/millrace || exit 1
status=0
for minor in 9 10 11 12 13 14; do
	python=
	for candidate in "python3.$minor" "$HOME"/.pyenv/versions/3."$minor".*/bin/python; do
		"$candidate" -c "import sys; sys.exit(sys.version_info[:2] != (3, $minor))" 2>/dev/null && python=$candidate
	done
	if [[ -z $python ]]; then
		echo "Python 3.$minor: not on this machine"
		continue
	fi
	venv=build/pythons/3.$minor
	PYTHON=$python tools/venv.sh "$venv" tools/requirements-test.txt || { status=1; continue; }
	said=$("$venv/bin/python" -m pytest -q -p no:cacheprovider clients/python 2>&1) || { status=1; echo "$said"; }
	echo "Python 3.$minor: ${said##*$'\n'}"
done
exit $status

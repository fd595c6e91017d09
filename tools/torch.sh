#!/usr/bin/env bash
# torch.sh DIR: makes a Python environment with PyTorch, once. It uses the system's PyTorch if there is one (on Debian:
# apt-get install python3-torch, a small download). Otherwise it downloads PyTorch from the registry: about 4 GB.
set -euo pipefail

dir=$1 here=$(dirname "$0")
[[ -x $dir/bin/python ]] && "$dir/bin/python" -c 'import torch, pytest' 2>/dev/null && exit 0

for python in "${TORCH_PYTHON:-}" /usr/bin/python3 python3; do
	if [[ -n $python ]] && command -v "$python" >/dev/null && "$python" -c 'import torch, numpy' 2>/dev/null; then
		rm -rf "$dir"
		"$python" -m venv --system-site-packages "$dir"
		pytest=$(grep -m1 '^pytest==' "$here/requirements-test.txt" | cut -d' ' -f1)
		"$dir/bin/python" -m pip install --quiet --disable-pip-version-check "$pytest"
		exit 0
	fi
done
echo "torch.sh: no Python of this machine imports torch; downloading it (about 4 GB)" >&2
exec "$here/venv.sh" "$dir" "$here/requirements-torch.txt"

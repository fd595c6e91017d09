#!/usr/bin/env bash
# test_slurm.sh DIR [ARGUMENT …]: runs the tests of Slurm with Debian's daemons, which tools/slurm.sh unpacks once.
# torchrun is that of the Python environment DIR. All processes are in a PID namespace and a network namespace: nothing
# is left, and no port is taken.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$1
shift
skip() { echo "SKIPPED test-slurm: $1" >&2; exit 0; }

[[ $(id -u) -eq 0 ]] || skip "this user is not root, who alone can start jobs as a user"
own=(unshare --pid --fork --kill-child --mount --mount-proc --net --uts --ipc)
"${own[@]}" true 2>/dev/null || skip "this user cannot make PID and network namespaces (unshare of util-linux)"
for tool in ip hostname; do
	command -v "$tool" >/dev/null || skip "$tool is not installed (on Debian: apt-get install iproute2 hostname)"
done
MILLRACE_SLURM=$(tools/slurm.sh) || skip "the packages of Slurm cannot be unpacked (tools/slurm.sh)"
MILLRACE_ETCD=$(tools/etcd.sh) || skip "etcd cannot be built (tools/etcd.sh)"
tools/adapters.sh "$dir" || skip "PyTorch cannot be installed (tools/adapters.sh)"
tools/venv.sh .venv-e2e e2e/requirements.txt
export MILLRACE_SLURM MILLRACE_ETCD MILLRACE=$PWD/build/millrace MILLRACE_TORCH=$dir/bin/python
go build -o "$MILLRACE" ./cmd/millrace
"${own[@]}" bash -c 'ip link set lo up && mount -t tmpfs tmpfs /run && exec "$@"' slurm \
	.venv-e2e/bin/python -m pytest -q -rs -p no:cacheprovider e2e/test_slurm.py "$@"

#!/usr/bin/env bash
# ray.sh DIR [ARGUMENT …]: runs the tests of Ray in the Python environment DIR, which it makes once (about 700 MB,
# without PyTorch). With arguments for pytest, it runs pytest once with them.
# Ray and all its processes are in a PID namespace and a network namespace: nothing is left, and no port is taken.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$1
skip() { echo "SKIPPED test-ray: $1" >&2; exit 0; }

own=(unshare --pid --fork --kill-child --mount --net --mount-proc)
[[ $(id -u) -eq 0 ]] || own+=(--user --map-root-user)
"${own[@]}" true 2>/dev/null || skip "this user cannot make PID and network namespaces (unshare of util-linux)"

mkdir -p "$dir"
exec 9>"$dir.lock"
flock 9 # another checkout may use the same environment
tools/venv.sh "$dir" tools/requirements-ray.txt || skip "the packages of tools/requirements-ray.txt cannot be installed"
flock -u 9

if etcd=$(tools/etcd.sh); then
	PATH=$(dirname "$etcd"):$PATH
else
	skip "etcd cannot be built (tools/etcd.sh)"
fi
if redis=$(tools/redis.sh); then PATH=$(dirname "$redis"):$PATH; fi # without it, one test is skipped
go build -o build/millrace ./cmd/millrace
export MILLRACE=$PWD/build/millrace
run() {
	"${own[@]}" bash -c 'ip link set lo up && exec "$@"' ray \
		"$dir/bin/python" -m pytest -q -rs -s -p no:cacheprovider "$@" 9>&-
}
shift
if [[ $# -gt 0 ]]; then
	run "$@"
elif ((${MILLRACE_RAY_NODES:-2} <= 2)); then
	run examples/ray/test_ray.py
else # each has a Ray of its own
	for tests in examples/ray/test_*.py; do run "$tests"; done
	MILLRACE_RAY=$dir/bin/python "${own[@]}" bash -c 'ip link set lo up && exec "$@"' ray \
		go test -count=1 -run TestContractOnRay ./app/place/mailbox 9>&-
fi

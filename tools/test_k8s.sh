#!/usr/bin/env bash
# Runs the tests of Kubernetes against its real API server, controller manager and scheduler, which tools/k8s.sh builds
# once. All processes are in a PID namespace and a network namespace: nothing is left, and no port is taken.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() { echo "SKIPPED test-k8s: $1" >&2; exit 0; }

own=(unshare --pid --fork --kill-child --mount --net --mount-proc)
[[ $(id -u) -eq 0 ]] || own+=(--user --map-root-user)
"${own[@]}" true 2>/dev/null || skip "this user cannot make PID and network namespaces (unshare of util-linux)"

MILLRACE_ETCD=$(tools/etcd.sh) || skip "etcd cannot be built (tools/etcd.sh)"
MILLRACE_K8S=$(tools/k8s.sh) || skip "Kubernetes cannot be built (tools/k8s.sh)"
export MILLRACE_ETCD MILLRACE_K8S

tools/venv.sh .venv-e2e e2e/requirements.txt
export MILLRACE_E2E_PYTHON=$PWD/.venv-e2e/bin/python MILLRACE=$PWD/build/millrace
mkdir -p build
go build -o "$MILLRACE" ./cmd/millrace
go test -c -o build/kubernetes.test ./app/place/kubernetes # the namespace has no module proxy
cd app/place/kubernetes
"${own[@]}" bash -c 'ip link set lo up && mount -t tmpfs tmpfs /run && exec "$@"' k8s \
	"$OLDPWD/build/kubernetes.test" -test.run '^TestKubernetes$' -test.v -test.timeout 20m "$@"

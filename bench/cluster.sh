#!/bin/sh
# Measures runs on several hosts. Arguments go to bench/cluster. The first run makes the environment .venv-e2e, because
# the hosts are those of the end-to-end tests, and builds etcd.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
"$root/tools/venv.sh" "$root/.venv-e2e" "$root/e2e/requirements.txt"
etcd=$("$root/tools/etcd.sh")

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT INT TERM
(cd "$root" && go build -o "$build/millrace" ./cmd/millrace)
"$root/.venv-e2e/bin/python" "$root/bench/cluster" --millrace "$build/millrace" --etcd "$etcd" "$@"

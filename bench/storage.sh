#!/bin/sh
# Reads files of an object store with 50 ms latency beside local ones (bench/storage.py). Arguments go to
# bench/storage.py.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT INT TERM
cd "$root"
go build -o "$tools/" ./cmd/millrace ./bench/storetest
go test -c -o "$tools/remote.test" ./sources/store/remote
python3 "$root/bench/storage.py" --tools "$tools" --data "$root/build/bench-storage" "$@"

#!/usr/bin/env bash
# Builds etcd's server from its Go module, once, in the cache directory of the user. Prints the path of the program.
set -euo pipefail
cd "$(dirname "$0")/etcd"

version=$(GOFLAGS=-mod=mod go list -m -f '{{.Version}}' go.etcd.io/etcd/server/v3)
program=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/etcd-$version/etcd
if [[ ! -x $program ]]; then
	mkdir -p "$(dirname "$program")"
	CGO_ENABLED=0 GOFLAGS=-trimpath go build -ldflags "-s -w" -o "$program.$$" . # several may build at the same time
	mv "$program.$$" "$program"
fi
echo "$program"

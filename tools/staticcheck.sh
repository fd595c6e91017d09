#!/usr/bin/env bash
# Builds staticcheck of tools/go.mod, once, in the cache directory of the user. Prints the path of the program.
set -euo pipefail
cd "$(dirname "$0")"

version=$(go list -m -f '{{.Version}}' honnef.co/go/tools)
program=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/staticcheck-$version-$(go env GOVERSION)/staticcheck
if [[ ! -x $program ]]; then
	mkdir -p "$(dirname "$program")"
	go build -o "$program.$$" honnef.co/go/tools/cmd/staticcheck # several may build at the same time
	mv "$program.$$" "$program"
fi
echo "$program"

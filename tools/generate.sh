#!/usr/bin/env bash
# Regenerates the checked-in generated files: the Go of proto/*.proto, and the outputs of the go:generate lines.
set -euo pipefail
cd "$(dirname "$0")/.."

protoc_version=3.21.12 # the generated files contain it

if ! command -v protoc >/dev/null; then
	echo "generate: protoc is not installed (on Debian: apt-get install protobuf-compiler)" >&2
	exit 1
fi
found=$(protoc --version | sed 's/.* //')
if [[ $found != "$protoc_version" ]]; then
	echo "generate: protoc is $found, not $protoc_version; the headers of the generated files will differ" >&2
fi

plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
go -C tools build -o "$plugins/" \
	google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
PATH=$plugins:$PATH protoc -I proto --go_out=. --go_opt=module=millrace \
	--go-grpc_out=. --go-grpc_opt=module=millrace $(cd proto && ls *.proto)
go generate ./...

#!/usr/bin/env bash
# image.sh OUT [ARCH…]: writes an OCI image of the architectures (amd64 arm64) as the tar file OUT, without a daemon.
# The binaries are static. Equal commits give equal bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(realpath -m "$1")
shift
(($#)) || set -- amd64 arm64

version=$(python3 clients/python/build_backend/millrace_build.py version)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

platforms=()
for arch; do
	GOARCH=$arch CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$version" \
		-o "$work/millrace-$arch" ./cmd/millrace
	go -C tools run ./sbom "$work/millrace-$arch" "$version" >"$work/sbom-$arch.json"
	platforms+=("$arch=$work/millrace-$arch,$work/sbom-$arch.json")
done
go -C tools run ./image -out "$out" -version "$version" -revision "$(git rev-parse HEAD 2>/dev/null || true)" \
	-license "$PWD/LICENSE" "${platforms[@]}"
sha256sum "$out"

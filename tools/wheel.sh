#!/usr/bin/env bash
# wheel.sh VENV OUT [ARCH…]: builds the wheels of the architectures (amd64 arm64) into OUT, and checks each of them.
# VENV gets the tools of requirements-wheel.txt. Equal commits give equal bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1 out=$2
shift 2
(($#)) || set -- amd64 arm64

glibc=2.17
declare -A machine=([amd64]=x86_64 [arm64]=aarch64)
python=$venv/bin/python
backend=clients/python/build_backend/millrace_build.py

tools/venv.sh "$venv" tools/requirements-wheel.txt
mkdir -p "$out"
version=$(python3 "$backend" version)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# stub FILE TARGET: the stub of zigcc.sh. Its own name is that of a library which every program may load.
stub() {
	local nvml
	nvml=$(go list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml)
	grep -ohE '\bnvml[A-Z]\w*' "$nvml/pkg/nvml/nvml.h" | sort -u | sed 's/.*/void &(void) {}/' >"$work/stub.c"
	"$python" -m ziglang cc -target "$2" -shared -nostdlib -Wl,-soname,libm.so.6 -o "$1" "$work/stub.c"
}

for arch; do
	target=${machine[$arch]}-linux-gnu.$glibc platform=manylinux_${glibc/./_}_${machine[$arch]}
	stub "$work/libstub-$arch.so" "$target"
	# Names of hosts and users are resolved in Go, because glibc loads libraries for that.
	GOARCH=$arch CGO_ENABLED=1 CC="$PWD/tools/zigcc.sh $python $target $work/libstub-$arch.so" \
		go build -trimpath -buildvcs=false -tags netgo,osusergo \
		-ldflags "-s -w -buildid= -extldflags=-s -X main.version=$version" -o "$work/millrace" ./cmd/millrace
	go -C tools run ./sbom "$work/millrace" "$version" >"$work/sbom.json"
	wheel=$out/$(python3 "$backend" wheel "$out" \
		binary="$work/millrace" platform="$platform" sbom="$work/sbom.json")

	# auditwheel compares the versions of the symbols with the tag.
	found=$("$python" -m auditwheel show "$wheel" | tr '\n' ' ')
	[[ $found == *"consistent with the following platform tag: \"$platform\""* ]] || {
		echo "wheel.sh: $wheel does not keep its tag $platform: $found" >&2
		exit 1
	}
	tools/old_glibc.sh "$arch" "$work/millrace" "$version"
	sha256sum "$wheel"
done

#!/usr/bin/env bash
# zigcc.sh PYTHON TARGET STUB ARGUMENTS…: a C compiler for cgo. It is Zig's compiler for TARGET, such as
# x86_64-linux-gnu.2.17: an architecture and a version of glibc.
#
# go-nvml leaves the functions of NVML undefined until it has loaded the driver's library. Zig's linker has no option
# for undefined functions. Therefore the link step uses STUB, a shared library with the names of these functions, and
# binds each function at its first call.
set -euo pipefail

python=$1 target=$2 stub=$3
shift 3

args=() linking=yes
for arg in "$@"; do
	case $arg in
	-Wl,--unresolved-symbols=*) continue ;;
	-c | -E | -S | --version | -v | -###) linking= ;;
	esac
	args+=("$arg")
done
[[ -z $linking ]] || args+=(-Wl,-z,lazy "$stub")
exec "$python" -m ziglang cc -target "$target" "${args[@]}"

#!/usr/bin/env bash
# old_glibc.sh ARCH BINARY VERSION: runs a binary with glibc 2.23 of 2016, the oldest one that a registry still has.
# A binary for arm64 runs in qemu-aarch64-static. If a part is missing, the script says so and succeeds.
set -euo pipefail

arch=$1 binary=$2 version=$3
cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/glibc-2.23
registry=http://archive.ubuntu.com/ubuntu/pool/main

skip() { echo "old_glibc.sh: not run with an old glibc: $1"; exit 0; }

case $arch in
amd64)
	package=g/glibc/libc6_2.23-0ubuntu3_amd64.deb
	digest=68d69a0fb2dae7578a2a7054bc0cd5f0994d523f60d540bc6708ff3f2fb33e18
	libraries=$cache/amd64/lib/x86_64-linux-gnu
	run=("$libraries/ld-2.23.so" --library-path "$libraries" "$binary")
	[[ $(uname -m) == x86_64 ]] || skip "this machine cannot run x86-64"
	;;
arm64)
	package=c/cross-toolchain-base/libc6-arm64-cross_2.23-0ubuntu3cross1_all.deb
	digest=157c468534e024702a561febf85ad1e3b857fa7ee68067400dac0b8fc21a5db0
	qemu=$(command -v qemu-aarch64-static) || skip "qemu-aarch64-static is not installed"
	run=("$qemu" -L "$cache/arm64/usr/aarch64-linux-gnu" "$binary")
	;;
esac

if [[ ! -d $cache/$arch ]]; then
	command -v dpkg-deb >/dev/null || skip "dpkg-deb is not installed"
	mkdir -p "$cache"
	new=$(mktemp -d "$cache/new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	curl -fsS -m 120 -o "$new/glibc.deb" "$registry/$package" || skip "cannot download $registry/$package"
	echo "$digest  $new/glibc.deb" | sha256sum --quiet -c
	dpkg-deb -x "$new/glibc.deb" "$new/root"
	mv -T "$new/root" "$cache/$arch" || [[ -d $cache/$arch ]]
fi

said=$("${run[@]}" version)
[[ $said == "millrace $version, "*"/$arch" ]] || { echo "old_glibc.sh: $binary says: $said" >&2; exit 1; }

# A run of all roles: it reads, tokenises, journals and serves.
work=$(mktemp -d)
up=
trap '[[ -z $up ]] || kill -9 "$up" 2>/dev/null || true; rm -rf "$work" ${new:+"$new"}' EXIT
for i in {1..99}; do echo "{\"text\": \"page $i of a small book\"}"; done >"$work/book.jsonl"
cat >"$work/mixture.yaml" <<-EOF
	{version: 1, seed: 1, tokenizer: {name: gpt2}, sequence_length: 64, global_batch_size: 2, micro_batch_size: 1,
	 stop: {epochs: 1}, mixture: {weights: {book: 1}}, sources: {book: {path: book.jsonl}}}
EOF
mkfifo "$work/out"
MILLRACE_PROGRAM="${run[*]}" "${run[@]}" up "$work/mixture.yaml" --ranks 1 --run-dir "$work/run" >"$work/out" &
up=$!
read -r -t 60 line <"$work/out" && [[ $line == ready:* ]] || { echo "old_glibc.sh: $binary serves no run" >&2; exit 1; }
kill -TERM "$up"
wait "$up"
up=
echo "$arch runs with glibc 2.23: $said"

#!/usr/bin/env bash
# Packs page.txt with the commands gzip 1.12, bzip2 1.0.8, xz 5.4 and zstd 1.5.4.
set -euo pipefail
cd "$(dirname "$0")"
gzip -nkf page.txt
bzip2 -kf page.txt
xz -0 -kf page.txt
zstd -qkf --check page.txt
parts() { { head -c 1000 page.txt | "$@"; tail -c +1001 page.txt | "$@"; }; }
parts gzip -n >two.txt.gz
parts bzip2 >two.txt.bz2
parts xz -0 >two.txt.xz
parts zstd -q --check >two.txt.zst
bzip2 </dev/null >empty.txt.bz2

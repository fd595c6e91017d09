#!/usr/bin/env bash
# Writes the packed files of the tests with the commands bzip2 1.0.8 and xz 5.4.
set -euo pipefail
cd "$(dirname "$0")"
for i in $(seq 0 299); do printf '{"text": "record %d %s"}\n' "$i" "$(printf 'w%d ' $(seq 0 $((i % 40))))"; done >few.jsonl
bzip2 -kf few.jsonl
{ head -c 7000 few.jsonl | bzip2 -1; tail -c +7001 few.jsonl | bzip2; } >two.jsonl.bz2
xz -kf few.jsonl
xz -kc --block-size=4096 few.jsonl >blocks.jsonl.xz
{ head -c 7000 few.jsonl | xz -9 --check=sha256; tail -c +7001 few.jsonl | xz -0; } >two.jsonl.xz
rm few.jsonl

#!/usr/bin/env bash
# Fails if the subject of a commit has more than 72 characters. A shallow clone checks its own commits. Outside a git
# checkout of this project, for example in an unpacked archive, it passes without a check.
set -euo pipefail
export LC_ALL=C.UTF-8 # ${#…} counts characters, not bytes
cd "$(dirname "$0")/.."

since=2026-11-22T10:17:00Z # older commits are published
most=72

top=$(git rev-parse --show-toplevel 2>/dev/null) || exit 0
[[ $top -ef . ]] && git rev-parse --quiet --verify HEAD >/dev/null || exit 0

log=$(git log --since="$since" --no-merges --format='%h %s')
long=
while IFS= read -r line; do
	subject=${line#* }
	((${#subject} <= most)) || long+="  $line"$'\n'
done <<<"$log"

if [[ -n $long ]]; then
	echo "these commit subjects have more than $most characters; shorten them and put the reason into the body:"
	printf %s "$long"
	exit 1
fi

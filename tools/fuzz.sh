#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (20 s by default).
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
while IFS=: read -r file line; do
	target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/' <<<"$line")
	echo "$target of $(dirname "$file")"
	go test -vet=off -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" "$(dirname "$file")" </dev/null ||
		status=1
done < <(grep -rE '^func Fuzz' --include='*_test.go' .)
exit $status

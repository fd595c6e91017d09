#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (20 s by default). Inputs are not minimised: a target with goroutines covers other
# code each time, and its inputs would be minimised without end.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
while IFS=: read -r file line; do
	target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/' <<<"$line")
	echo "$target of $(dirname "$file")"
	go test -vet=off -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" -fuzzminimizetime 1x \
		"$(dirname "$file")" </dev/null || status=1
done < <(grep -rE '^func Fuzz' --include='*_test.go' .)
exit $status

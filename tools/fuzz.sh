#!/usr/bin/env bash
# Runs fuzz targets one after the other for FUZZTIME each (20s). ONLY is a regular expression over "PACKAGE TARGET".
# RECORD=1 adds the totals of each target to docs/campaigns.md. Inputs are not minimised: a target with goroutines
# covers other code each time, and its inputs would be minimised without end.
set -euo pipefail
cd "$(dirname "$0")/.."

page=docs/campaigns.md
cache=$(go env GOCACHE)/fuzz/millrace
binaries=build/fuzz
mkdir -p "$binaries"
status=0

# record adds executions, CPU seconds and new inputs to the row of a target, or appends a row.
record() {
	awk -F ' *[|] *' -v key="\`$1\` · \`$2\`" -v execs="$3" -v cpu="$4" -v new="$5" -v result="$6" '
		function row(e, c, n, r) { printf "| %s | %d | %.1f | %d | %s |\n", key, e, c, n, r }
		/^\| Target \| Executions/ { inside = 1 }
		inside && $2 == key {
			row($3 + execs, $4 + cpu / 60, $5 + new, result == "passed" && $6 != "" ? $6 : result)
			done = 1
			next
		}
		inside && !/^\|/ { if (!done) row(execs, cpu / 60, new, result); inside = 0; done = 1 }
		{ print }
		END { if (inside && !done) row(execs, cpu / 60, new, result) }
	' "$page" >"$page.new"
	mv "$page.new" "$page"
}

while read -r package target; do
	[[ "$package $target" =~ ${ONLY:-.} ]] || continue
	echo "$target of $package"
	binary=$PWD/$binaries/${package//\//-}.test
	if [[ $package != "${built:-}" ]]; then # instrumented for all of its targets
		go test -vet=off -c -fuzz . -o "$binary" "./$package" || { status=1; continue; }
		built=$package
	fi
	out=$(mktemp)
	result=passed
	TIMEFORMAT='%U %S'
	{ time (cd "$package" && nice -n "${NICE:-0}" "$binary" -test.run '^$' -test.fuzz "^$target\$" \
		-test.fuzztime "${FUZZTIME:-20s}" -test.fuzzminimizetime 1x -test.parallel "${PARALLEL:-$(nproc)}" \
		-test.fuzzcachedir "$cache/$package" </dev/null >"$out" 2>&1); } 2>"$out.time" || result=failed
	tail -n 3 "$out"
	# the fuzzing of Go ends in this way if the last input takes longer than the time that was left
	if [[ $result == failed ]] && grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input' "$out"; then
		result=passed
	fi
	if [[ $result == failed ]]; then
		cat "$out"
		status=1
	fi
	if [[ ${RECORD:-} ]]; then
		execs=$(grep -o 'execs: [0-9]*' "$out" | tail -1 | tr -dc 0-9 || true)
		new=$(grep -o 'new interesting: [0-9]*' "$out" | tail -1 | tr -dc 0-9 || true)
		cpu=$(awk '{ print $1 + $2 }' "$out.time")
		record "$package" "$target" "${execs:-0}" "$cpu" "${new:-0}" "$result"
	fi
	rm -f "$out" "$out.time"
done < <(grep -rE '^func Fuzz' --include='*_test.go' . |
	sed -E 's|^\./(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*).*|\1 \2|' | sort)
exit $status

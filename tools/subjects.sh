#!/usr/bin/env bash
# Fails when the subject of a commit has more than 72 characters. The rule holds from the date below on.
set -euo pipefail
cd "$(dirname "$0")/.."

long=$(git log --since=2026-11-22T09:15:00Z --no-merges --format='%h %s' | awk '{ subject = substr($0, index($0, " ") + 1) } length(subject) > 72')
if [[ -n $long ]]; then
	echo "these commit subjects have more than 72 characters (put the why into the body):"
	echo "$long"
	exit 1
fi

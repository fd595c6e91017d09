#!/usr/bin/env bash
# Installs Azurite, the emulator of Azure Blob Storage, once, in the cache directory of the user. Prints the path of the
# program. It needs npm, and 190 MB of disk.
set -euo pipefail

version=3.35.0
at=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/stores/azurite-$version
program=$at/node_modules/.bin/azurite-blob
if [[ ! -x $program ]]; then
	command -v npm >/dev/null || {
		echo "azurite.sh: npm is not installed (on Debian: apt-get install npm)" >&2
		exit 1
	}
	mkdir -p "$at"
	timeout 300 npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$at" "azurite@$version" >&2
fi
echo "$program"

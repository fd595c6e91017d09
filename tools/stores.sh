#!/usr/bin/env bash
# Reads files of Azurite (Azure Blob Storage) and of fake-gcs-server (Google Cloud Storage). Both are installed once,
# into the cache directory of the user. Without npm, Azurite is left out, and its test says so.
set -euo pipefail
cd "$(dirname "$0")/.."

azurite=3.35.0 gcs=v1.56.1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/stores
mkdir -p "$cache"
if [[ ! -x $cache/gcs-$gcs/fake-gcs-server ]]; then
	GOBIN=$cache/gcs-$gcs GOFLAGS=-trimpath go install "github.com/fsouza/fake-gcs-server@$gcs"
fi
export MILLRACE_GCS_SERVER=$cache/gcs-$gcs/fake-gcs-server
if command -v npm >/dev/null; then
	at=$cache/azurite-$azurite
	if [[ ! -x $at/node_modules/.bin/azurite-blob ]]; then
		npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$at" "azurite@$azurite"
	fi
	export MILLRACE_AZURITE=$at/node_modules/.bin/azurite-blob
fi
go test -count=1 -v -run TestEmulators ./sources/remote

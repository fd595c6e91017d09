#!/usr/bin/env bash
# Reads files of Azurite (Azure Blob Storage) and of fake-gcs-server (Google Cloud Storage). Both are installed once,
# into the cache directory of the user. Without npm, Azurite is left out, and its test says so.
set -euo pipefail
cd "$(dirname "$0")/.."

gcs=v1.56.1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/stores
mkdir -p "$cache"
if [[ ! -x $cache/gcs-$gcs/fake-gcs-server ]]; then
	GOBIN=$cache/gcs-$gcs GOFLAGS=-trimpath go install "github.com/fsouza/fake-gcs-server@$gcs"
fi
export MILLRACE_GCS_SERVER=$cache/gcs-$gcs/fake-gcs-server
if azurite=$(tools/azurite.sh); then
	export MILLRACE_AZURITE=$azurite
fi
go test -count=1 -v -run TestEmulators ./sources/store/remote

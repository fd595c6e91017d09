#!/usr/bin/env bash
# Unpacks Debian's redis-server, once, in the cache directory of the user, and installs nothing. Prints the command.
set -euo pipefail

if command -v redis-server; then exit 0; fi
dir=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/redis
if [[ ! -x $dir/redis-server ]]; then
	mkdir -p "$dir"
	cd "$dir"
	apt-get download redis-server redis-tools libjemalloc2 liblzf1 >&2
	for package in *.deb; do dpkg -x "$package" .; done
	printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$(echo "$dir"/usr/lib/*-linux-gnu)" \
		"$dir/usr/bin/redis-server" >redis-server
	chmod +x redis-server
	./redis-server --version >&2
fi
echo "$dir/redis-server"

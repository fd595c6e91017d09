#!/usr/bin/env bash
# Unpacks Debian's Slurm and munge, once, in the cache directory of the user, and installs nothing. Prints the
# directory.
set -euo pipefail

dir=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/slurm
if [[ ! -e $dir/complete ]]; then
	mkdir -p "$dir"
	cd "$dir"
	apt-get download slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 libhwloc15 >&2
	for package in *.deb; do dpkg -x "$package" .; done
	rm ./*.deb
	LD_LIBRARY_PATH=$(echo "$dir"/usr/lib/*-linux-gnu/slurm-wlm) usr/sbin/slurmctld-wlm -V >&2
	touch complete
fi
echo "$dir"

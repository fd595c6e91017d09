#!/usr/bin/env bash
# Runs one host of a training job: `millrace up` beside the trainers of the host. An engine starts it once on each host,
# with these variables (Slurm sets those that begin with SLURM_):
#
#   MIXTURE        the mixture file
#   RUN_DIR        a directory of this host for sockets and journal
#   CLUSTER        the cluster file. Its `listen:` line is replaced by this host's name and PORT (9400), and `{host}`
#                  by the name, for example in the paths of its certificate.
#   RUN            the name of the run                  (default: that of the cluster file)
#   RANKS          trainer ranks of each host
#   HOSTS          number of hosts                      (default: SLURM_NNODES)
#   HOST           number of this host, from 0          (default: SLURM_NODEID)
#
# and with the command of the trainers as arguments. The trainers find their sockets by MILLRACE_RUN_DIR, LOCAL_RANK and
# RANK, which torchrun sets. The script ends with the status of the trainers, and stops `up`. If `up` is killed, it is
# started again on the same directory, and the trainers go on with the next batch.
set -euo pipefail

hosts=${HOSTS:-${SLURM_NNODES:?set HOSTS to the number of hosts}}
host=${HOST:-${SLURM_NODEID:?set HOST to the number of this host}}
: "${MIXTURE:?}" "${RUN_DIR:?}" "${CLUSTER:?}" "${RANKS:?}"
(($#)) || { echo "node.sh: the command of the trainers is missing" >&2; exit 2; }

mkdir -p "$RUN_DIR"
# Paths in the file are relative to it, so the copy lies beside it.
mine=$(dirname "$CLUSTER")/.cluster-${RUN:-run}-$host.yaml
listen=${LISTEN:-$(hostname -f):${PORT:-9400}}
sed -e "s|^listen:.*|listen: \"$listen\"|" -e "s|{host}|${listen%:*}|g" \
	${RUN:+-e "s|^name:.*|name: \"$RUN\"|"} "$CLUSTER" >"$mine"

# Keeps `up` alive. A status below 128 is its own: the run is over (0), it failed (1), or a file is wrong (2).
serve() {
	local up="" status=0 stopping=""
	trap 'stopping=yes; kill -TERM $up 2>/dev/null || true' TERM
	while :; do
		"${MILLRACE:-millrace}" up "$MIXTURE" --ranks "$RANKS" --world-size $((hosts * RANKS)) \
			--first-rank $((host * RANKS)) --cluster "$mine" --run-dir "$RUN_DIR" &
		up=$!
		[[ ! $stopping ]] || kill -TERM $up
		status=0
		wait $up || status=$? # also if the trap has run
		if [[ $stopping ]]; then
			wait $up || true
			return 0
		fi
		((status >= 128)) || return $status
		echo "node.sh: \`millrace up\` was killed (status $status), and starts again" >&2
	done
}

ready=$(mktemp -u)
mkfifo "$ready"
serve >"$ready" &
serving=$!
trap 'kill -TERM $serving 2>/dev/null || true; wait $serving || true; rm -f "$ready" "$mine"' EXIT
# `up` prints one line when all sockets accept, and nothing if it fails. Later ones need a reader that lives.
exec 3<"$ready"
if ! read -r line <&3; then
	wait $serving
	exit 1
fi
echo "$line"

MILLRACE_RUN_DIR=$RUN_DIR "$@"

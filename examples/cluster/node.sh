#!/usr/bin/env bash
# Runs one host of a training job: `millrace up` beside the trainers of the host. An engine starts it once on each host,
# with these variables (Slurm sets those that begin with SLURM_):
#
#   MIXTURE        the mixture file
#   RUN_DIR        a directory of this host for sockets and journal
#   CLUSTER        the cluster file; its `listen:` line is replaced by this host's name and PORT (9400)
#   RANKS          trainer ranks of each host
#   HOSTS          number of hosts                      (default: SLURM_NNODES)
#   HOST           number of this host, from 0          (default: SLURM_NODEID)
#
# and with the command of the trainers as arguments. The trainers find their sockets by MILLRACE_RUN_DIR, LOCAL_RANK and
# RANK, which torchrun sets. The script ends with the status of the trainers, and stops `up`.
set -euo pipefail

hosts=${HOSTS:-${SLURM_NNODES:?set HOSTS to the number of hosts}}
host=${HOST:-${SLURM_NODEID:?set HOST to the number of this host}}
: "${MIXTURE:?}" "${RUN_DIR:?}" "${CLUSTER:?}" "${RANKS:?}"
(($#)) || { echo "node.sh: the command of the trainers is missing" >&2; exit 2; }

mkdir -p "$RUN_DIR"
# Paths in the file are relative to it, so the copy lies beside it.
mine=$(dirname "$CLUSTER")/.cluster-$host.yaml
sed "s|^listen:.*|listen: \"${LISTEN:-$(hostname -f):${PORT:-9400}}\"|" "$CLUSTER" >"$mine"

ready=$(mktemp -u)
mkfifo "$ready"
"${MILLRACE:-millrace}" up "$MIXTURE" --ranks "$RANKS" --world-size $((hosts * RANKS)) --first-rank $((host * RANKS)) \
	--cluster "$mine" --run-dir "$RUN_DIR" >"$ready" &
up=$!
trap 'kill -TERM $up 2>/dev/null || true; wait $up || true; rm -f "$ready" "$mine"' EXIT
# `up` prints one line when all sockets accept. It prints nothing if it fails.
if ! read -r line <"$ready"; then
	wait $up
	exit 1
fi
echo "$line"

MILLRACE_RUN_DIR=$RUN_DIR "$@"

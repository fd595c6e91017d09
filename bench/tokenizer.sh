#!/bin/sh
# Measures our tokenizer beside gigatoken, fastokens, pip's tiktoken and Hugging Face's tokenizers, with the same
# vocabularies and text. The first run makes the environment .venv-bench. Arguments go to bench/tokenizer.py (see
# --help).
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
venv=${MILLRACE_BENCH_VENV:-$root/.venv-bench}
pins="tiktoken==0.14.0 tokenizers==0.22.2 gigatoken==0.10.0 fastokens==0.3.5 numpy"

fail() {
	echo "bench/tokenizer.sh: $1" >&2
	exit 1
}

command -v go >/dev/null 2>&1 || fail "go is not installed; it builds bench/tokenbench"
if [ ! -x "$venv/bin/python" ]; then
	command -v python3 >/dev/null 2>&1 || fail "python3 is not installed"
	python3 -m venv "$venv" ||
		fail "python3 cannot make an environment in $venv (on Debian: apt-get install python3-venv)"
fi
if ! "$venv/bin/python" -c 'import fastokens, gigatoken, tiktoken, tokenizers, numpy
assert tiktoken.__version__ == "0.14.0" and tokenizers.__version__ == "0.22.2"' 2>/dev/null; then
	# shellcheck disable=SC2086 # the pins are words
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check $pins ||
		fail "pip cannot install $pins for the comparison (our figures alone: go test -bench . ./text/tokenize)"
fi

tokenbench=$(mktemp -d)
trap 'rm -rf "$tokenbench"' EXIT INT TERM
(cd "$root" && go build -o "$tokenbench/tokenbench" ./bench/tokenbench)
export RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=true # encode_batch alone uses several threads
"$venv/bin/python" "$root/bench/tokenizer.py" --tokenbench "$tokenbench/tokenbench" "$@"

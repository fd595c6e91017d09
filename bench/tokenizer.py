"""Compares tokenizers on one core: ours, gigatoken, fastokens, pip's tiktoken and Hugging Face's tokenizers.

All get the same vocabulary (exported from ours) and the same documents: real files of this machine, chosen with a fixed
seed. Rounds are interleaved, so that other work on the machine affects all alike. Figures are medians over the rounds,
in MB of UTF-8 per second of CPU time. All ids are compared with tiktoken's.

Cold is the speed on every second document with an empty cache, fresh then on the others, as in training on new text,
and warm then on all again.

Run it through bench/tokenizer.sh, which makes the environment.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version

import fastokens
import gigatoken
import numpy as np
import tiktoken
import tiktoken_ext.openai_public as openai_public
import tokenizers
from documents import corpus, other_scripts

# Names of the patterns in gigatoken: its olmo3 is the pattern of Llama 3.
GIGATOKEN = {"gpt2": "r50k", "cl100k_base": "cl100k", "o200k_base": "o200k", "llama3": "olmo3"}

# The pattern of llama3/tokenizer.py in llama-models. The repository has no vocabulary of Llama 3, so the comparison
# takes the ranks of cl100k_base.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def exported(tokenbench: str, name: str) -> dict[bytes, int]:
    """Returns the ranks of an encoding, exported from our tokenizer."""
    out = subprocess.run([tokenbench, "-export", name], capture_output=True, check=True).stdout
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, out.splitlines())}


def tiktoken_encoding(name: str, ranks: dict[bytes, int]) -> tiktoken.Encoding:
    """Returns the encoding that tiktoken defines, with our ranks in place of a download."""
    if name == "llama3":
        return tiktoken.Encoding(name, pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
    openai_public.load_tiktoken_bpe = lambda *_, **__: ranks
    openai_public.data_gym_to_mergeable_bpe_ranks = lambda *_, **__: ranks
    return tiktoken.Encoding(**getattr(openai_public, name)())


def merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Returns the two parts of each merged token, in the order of ranks."""
    pairs = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            joined = (ranks.get(a + b, rank) for a, b in zip(parts, parts[1:], strict=False))
            _, i = min((r, i) for i, r in enumerate(joined))
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            pairs.append((parts[0], parts[1]))
    return pairs


def hugging_face(encoding: tiktoken.Encoding, ranks: dict[bytes, int]) -> tokenizers.Tokenizer:
    """Returns the same encoding for tokenizers. Its regex engine reads $ and {1,3}+ differently."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (b for b in range(256) if b not in printable)
    shown = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}

    def show(token: bytes) -> str:
        return "".join(shown[b] for b in token)

    vocab = {show(token): rank for token, rank in ranks.items()}
    pairs = [(show(a), show(b)) for a, b in merges(ranks)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, pairs, ignore_merges=True))
    pattern = encoding._pat_str.replace("$", r"\z").replace(r"\p{N}{1,3}+", r"(?>\p{N}{1,3})")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def digest(ids: list[np.ndarray]) -> str:
    return hashlib.sha256(np.concatenate(ids).astype("<u4").tobytes()).hexdigest()


def timed(encode: Callable[[], list]) -> tuple[float, list]:
    start = time.process_time()
    ids = encode()
    return time.process_time() - start, ids


class Comparison:
    """The candidates of one encoding and their measurements."""

    def __init__(
        self, tokenbench: str, name: str, mebibytes: int, texts: list[str], few: int, folder: pathlib.Path
    ) -> None:
        self.name = name
        self.texts = texts
        self.few = texts[:few]
        self.size = sum(len(t.encode()) for t in texts)
        self.few_size = sum(len(t.encode()) for t in self.few)
        vocabulary = "cl100k_base" if name == "llama3" else name
        self.command = [tokenbench, "-encoding", vocabulary, "-encoder-mib", str(mebibytes)]
        if name == "llama3":
            self.command += ["-pattern", LLAMA3]
        self.paths = "".join(f"{folder / str(i)}\n" for i in range(len(texts)))
        ranks = exported(tokenbench, vocabulary)
        self.tiktoken = tiktoken_encoding(name, ranks)
        self.hugging_face = hugging_face(self.tiktoken, ranks)
        self.file = folder / f"{name}.tiktoken"
        self.file.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % rank for t, rank in ranks.items()))
        self.speeds: dict[str, list[float]] = {}
        self.equal: dict[str, bool] = {}
        self.tokens = 0

    def note(self, who: str, size: int, seconds: float, equal: bool) -> None:
        self.speeds.setdefault(who, []).append(size / seconds / 1e6)
        self.equal[who] = self.equal.get(who, True) and equal

    def round(self) -> None:
        numpy_seconds, reference = timed(
            lambda: [self.tiktoken.encode_to_numpy(t, disallowed_special=()) for t in self.texts]
        )
        want = digest(reference)
        self.tokens = sum(map(len, reference))
        self.note("tiktoken encode_to_numpy", self.size, numpy_seconds, True)

        out = subprocess.run(self.command, input=self.paths, capture_output=True, text=True, check=True).stdout
        ours = json.loads(out)
        equal = ours["digest"] == want
        self.note("ours, cold", ours["cold_bytes"], ours["cold_cpu_seconds"], equal)
        self.note("ours, fresh", self.size - ours["cold_bytes"], ours["fresh_cpu_seconds"], equal)
        self.note("ours, warm", self.size, ours["warm_cpu_seconds"], equal)

        self.halves("gigatoken", gigatoken.Tokenizer.from_tiktoken(self.file, GIGATOKEN[self.name]).encode, reference)
        fast = fastokens.Tokenizer.from_tiktoken(str(self.file), pattern=self.tiktoken._pat_str, special_tokens={})
        self.halves("fastokens", lambda t: np.frombuffer(fast.encode_batch_flat([t])[0], np.uint32), reference)

        seconds, ids = timed(lambda: [self.tiktoken.encode_ordinary(t) for t in self.texts])
        equal = all(np.array_equal(a, b) for a, b in zip(ids, reference, strict=True))
        self.note("tiktoken encode_ordinary", self.size, seconds, equal)

        seconds, encodings = timed(lambda: self.hugging_face.encode_batch_fast(self.few, add_special_tokens=False))
        equal = all(np.array_equal(e.ids, r) for e, r in zip(encodings, reference, strict=False))
        self.note("tokenizers encode_batch_fast", self.few_size, seconds, equal)

    def halves(self, who: str, encode: Callable[[str], np.ndarray], reference: list[np.ndarray]) -> None:
        for kind, step in (("cold", slice(0, None, 2)), ("fresh", slice(1, None, 2)), ("warm", slice(None))):
            texts = self.texts[step]
            seconds, ids = timed(lambda texts=texts: [encode(t) for t in texts])
            equal = all(np.array_equal(a, b) for a, b in zip(ids, reference[step], strict=True))
            self.note(f"{who}, {kind}", sum(len(t.encode()) for t in texts), seconds, equal)

    def table(self) -> str:
        base = statistics.median(self.speeds["tiktoken encode_to_numpy"])
        lines = [
            f"### {self.name}: {self.tokens / 1e6:.2f} M tokens, {self.size / self.tokens:.2f} bytes a token",
            "",
            "| one core | MB/s, median (lowest–highest) | beside `encode_to_numpy` | ids as tiktoken's |",
            "| --- | --- | --- | --- |",
        ]
        for who in sorted(self.speeds, key=lambda who: -statistics.median(self.speeds[who])):
            speeds = self.speeds[who]
            middle = statistics.median(speeds)
            lines.append(
                f"| {who} | **{middle:.1f}** ({min(speeds):.1f}–{max(speeds):.1f}) "
                f"| {middle / base:.2f} × | {'yes' if self.equal[who] else 'NO'} |"
            )
        return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenbench", required=True, help="the built bench/tokenbench")
    parser.add_argument("--megabytes", type=float, default=12, help="size of the corpus")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--encodings", nargs="+", default=["gpt2", "cl100k_base", "o200k_base", "llama3"])
    parser.add_argument("--encoder-mib", type=int, default=32, help="memory of one of our encoders")
    parser.add_argument("--other-scripts", action="store_true", help="only documents of other scripts than Latin")
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures to this file")
    args = parser.parse_args()

    texts, labels = corpus(int(args.megabytes * 1e6))
    if args.other_scripts:
        texts = [t for t in texts if other_scripts(t) > len(t.encode()) // 4]
    few = max(1, len(texts) // 4)
    with tempfile.TemporaryDirectory() as folder:
        for i, text in enumerate(texts):
            (pathlib.Path(folder) / str(i)).write_bytes(text.encode())
        compared = [
            Comparison(args.tokenbench, name, args.encoder_mib, texts, few, pathlib.Path(folder))
            for name in args.encodings
        ]
        for _ in range(args.rounds):
            for comparison in compared:
                comparison.round()

    kinds = ", ".join(f"{label} {n / 1e6:.1f}" for label, n in labels.items())
    if args.other_scripts:
        kinds = f"{sum(len(t.encode()) for t in texts) / 1e6:.1f} of other scripts"
    print(
        f"tiktoken {tiktoken.__version__}, "
        f"gigatoken {version('gigatoken')}, fastokens {version('fastokens')}, "
        f"tokenizers {tokenizers.__version__} (on the first quarter of the documents), "
        f"{args.rounds} interleaved rounds, MB of UTF-8 per second of CPU time."
    )
    others = sum(map(other_scripts, texts)) / sum(len(t.encode()) for t in texts)
    print(f"{len(texts)} documents, MB: {kinds}. {others:.0%} are of other scripts than Latin.\n")
    for comparison in compared:
        print(comparison.table())
    if args.json:
        figures = {
            c.name: {"speeds": c.speeds, "equal": c.equal, "tokens": c.tokens, "bytes": c.size} for c in compared
        }
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    wrong = [
        f"{c.name}: {who}" for c in compared for who, equal in c.equal.items() if not equal and who.startswith("ours")
    ]
    for line in wrong:
        print(f"ids differ from tiktoken's: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

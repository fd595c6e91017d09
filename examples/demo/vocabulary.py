"""Learns a small byte pair vocabulary and writes it as a .tiktoken file, which a mixture may name as its tokenizer.

A demo's model has no use for the 50,257 tokens of gpt2: with a few thousand of its own the same model learns more in a minute. The merges
are those of Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", on bytes.
"""

from __future__ import annotations

import base64
import collections
import heapq
import re
from pathlib import Path
from typing import Counter, DefaultDict, Dict, Iterable, List, Set, Tuple

# Close to the pattern of cl100k, as near as Python's re comes. It only decides what may be learnt; Millrace cuts with the real one.
PIECES = re.compile(
    r"'(?:[sdmt]|ll|ve|re)|[^\r\n\w]?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

Pair = Tuple[int, int]


def learn(texts: Iterable[str], size: int) -> List[bytes]:
    """`size` tokens by rank: the 256 bytes, then merges, the most frequent pair first; fewer where the texts hold no more pairs."""
    pieces: Counter[str] = collections.Counter()
    for text in texts:
        pieces.update(PIECES.findall(text))
    tokens = [bytes([b]) for b in range(256)]
    ids: Dict[bytes, int] = {t: i for i, t in enumerate(tokens)}
    words = [list(p.encode()) for p in pieces]
    counts = list(pieces.values())

    pairs: Counter[Pair] = collections.Counter()
    where: DefaultDict[Pair, Set[int]] = collections.defaultdict(set)
    for w, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pairs[pair] += counts[w]
            where[pair].add(w)
    heap = [(-n, pair) for pair, n in pairs.items()]
    heapq.heapify(heap)

    while len(tokens) < size and heap:
        n, pair = heapq.heappop(heap)
        if pairs[pair] != -n:  # counted anew since
            if pairs[pair] > 0:
                heapq.heappush(heap, (-pairs[pair], pair))
            continue
        merged = tokens[pair[0]] + tokens[pair[1]]
        if merged not in ids:  # else two ways lead to the same bytes
            ids[merged] = len(tokens)
            tokens.append(merged)
        changed = _merge(pair, ids[merged], words, counts, pairs, where)
        for other in changed:
            if pairs[other] > 0:
                heapq.heappush(heap, (-pairs[other], other))
    return tokens


def _merge(
    pair: Pair,
    merged: int,
    words: List[List[int]],
    counts: List[int],
    pairs: Counter[Pair],
    where: DefaultDict[Pair, Set[int]],
) -> Set[Pair]:
    """Replace the pair in every word that has it, and return the pairs whose counts grew."""
    grown: Set[Pair] = set()
    for w in where.pop(pair):
        old, word, i = words[w], [], 0
        while i < len(old):
            if i + 1 < len(old) and (old[i], old[i + 1]) == pair:
                word.append(merged)
                i += 2
            else:
                word.append(old[i])
                i += 1
        for p in zip(old, old[1:]):
            pairs[p] -= counts[w]
        for p in zip(word, word[1:]):
            pairs[p] += counts[w]
            if merged in p:
                where[p].add(w)
                grown.add(p)
        words[w] = word
    del pairs[pair]
    return grown


def write(tokens: List[bytes], path: Path) -> None:
    """On each line a token in base64, a space and its rank."""
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % rank for rank, t in enumerate(tokens)))

"""Learns a small byte-pair vocabulary and writes it as a .tiktoken file, which a mixture may name as its tokenizer.

The demo's small model has no use for the 50,257 tokens of gpt2. With a few thousand tokens it learns more in a minute.
The merges follow Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", on bytes.
"""

from __future__ import annotations

import base64
import collections
import heapq
import re
from pathlib import Path
from typing import Counter, DefaultDict, Dict, Iterable, List, Set, Tuple

# Approximates the pattern of cl100k within Python's re. It only decides which tokens can be learnt.
PIECES = re.compile(
    r"'(?:[sdmt]|ll|ve|re)|[^\r\n\w]?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

Pair = Tuple[int, int]


def learn(texts: Iterable[str], size: int) -> List[bytes]:
    """Returns `size` tokens by rank: the 256 bytes, then merges, the most frequent pair first. Few texts give fewer."""
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
        if pairs[pair] != -n:  # outdated count
            if pairs[pair] > 0:
                heapq.heappush(heap, (-pairs[pair], pair))
            continue
        merged = tokens[pair[0]] + tokens[pair[1]]
        if merged not in ids:  # two pairs may merge into the same bytes
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
    """Replaces the pair in every word that has it. Returns the pairs with a larger count."""
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
    """Writes a line for each token: base64, a space, and the rank."""
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % rank for rank, t in enumerate(tokens)))

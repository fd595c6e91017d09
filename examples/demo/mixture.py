"""The demo's sizes, its mixture file, and the files of its sources."""

from __future__ import annotations

import collections
import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Dict, List

import numpy as np

import corpus
import millrace
import vocabulary
from run import Run


@dataclasses.dataclass(frozen=True)
class Size:
    """The sizes of a demo."""

    corpus: int  # bytes read of Go, and of Python
    characters: int  # of each source, for learning the vocabulary
    vocabulary: int
    width: int
    context: int
    global_batch: int
    micro_batch: int
    steps: int
    kill_at: int
    saved_at: int  # the checkpoint is written after this step
    left_at: int  # the training is stopped after this step
    ranks: int
    then_ranks: int
    rate: float


FULL = Size(12_000_000, 700_000, 2048, 96, 256, 16, 4, 320, 80, 159, 167, 2, 4, 2e-2)
QUICK = Size(1_500_000, 60_000, 512, 32, 128, 16, 4, 60, 15, 29, 35, 2, 1, 2e-2)

MIXTURE = """\
# Written by examples/demo/demo.py.
version: 1
seed: 7
tokenizer: {tokenizer}
sequence_length: {s.context}
global_batch_size: {s.global_batch}
micro_batch_size: {s.micro_batch}
stop: {{steps: {s.steps}}}
mixture:
  schedule:
    - {{from_step: 0, weights: {first}}}
    - {{from_step: {ramp_from}, weights: {then}, ramp: linear, over_steps: {ramp_over}}}
sources:
  python: {{path: python/*.jsonl.gz}}             # gzip, in blocks that can be read at random
  docs: {{path: docs/*.jsonl}}                    # plain JSONL
  go: {{format: megatron, path: go/corpus}}       # token ids, made beforehand
"""
FIRST = {"python": 0.6, "go": 0.3, "docs": 0.1}
THEN = {"python": 0.2, "go": 0.3, "docs": 0.5}

# One pass over the Go declarations, to tokenise them with Millrace.
TOKENIZE = """\
version: 1
tokenizer: {tokenizer}
sequence_length: 4096
global_batch_size: 16
micro_batch_size: 16
shuffle: none
token_dtype: int32
stop: {{epochs: 1}}
mixture: {{weights: {{go: 1}}}}
sources: {{go: {{path: go-text}}}}
"""


class Say:
    """Prints progress with the seconds since the beginning."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def title(self, text: str) -> None:
        """Prints the title of a part."""
        print(f"\n{time.monotonic() - self.began:5.1f} s  {text}", flush=True)

    def __call__(self, text: str) -> None:
        print(f"         {text}", flush=True)


def make_corpus(binary: Path, size: Size, place: Path, say: Say) -> Dict[str, int]:
    """Writes the sources, the vocabulary and the mixture file; returns the number of documents by source."""
    documents = corpus.collect(size.corpus)
    counts = {name: len(texts) for name, texts in documents.items()}
    volume = {name: sum(map(len, texts)) / 1e6 for name, texts in documents.items()}
    tokens = vocabulary.learn(corpus.sample(documents, size.characters), size.vocabulary)
    vocabulary.write(tokens, place / "vocabulary.tiktoken")
    say(f"vocabulary: {len(tokens)} tokens, byte pairs learnt from a sample of the corpus  (vocabulary.tiktoken)")

    corpus.write_jsonl_gzip(documents["python"], place / "python")
    say(
        f"python:  {counts['python']:6d} declarations of the standard library, {volume['python']:4.1f} MB  "
        "-> JSONL in gzip"
    )
    corpus.write_jsonl(documents["docs"], place / "docs")
    say(f"docs:    {counts['docs']:6d} comments, docstrings, pages and licences, {volume['docs']:4.1f} MB  -> JSONL")
    # A rank file names neither its pattern nor its special tokens. The end of a text is the first id after the ranks.
    special = f'specials: {{"<|endoftext|>": {len(tokens)}}}, eos: "<|endoftext|>"'
    tokenizer = f"{{path: vocabulary.tiktoken, pattern: cl100k, {special}}}"
    ids = tokenize(binary, tokenizer, documents["go"], place)
    corpus.write_megatron(ids, place / "go" / "corpus")
    say(
        f"go:      {counts['go']:6d} declarations of Go's library, {volume['go']:4.1f} MB  "
        f"-> {sum(map(len, ids)) / 1e6:.1f} M token ids for Megatron (.bin, .idx),"
    )
    say("         tokenised by Millrace itself: a run of one pass, whose trainer writes the tokens down")

    over = size.steps // 2
    mixture = MIXTURE.format(
        s=size,
        tokenizer=tokenizer,
        first=json.dumps(FIRST),
        then=json.dumps(THEN),
        ramp_from=size.steps // 5,
        ramp_over=over,
    )
    (place / "mixture.yaml").write_text(mixture)
    return counts


def tokenize(binary: Path, tokenizer: str, texts: List[str], place: Path) -> List["np.ndarray"]:
    """Returns the tokens of each text."""
    directory = place / "go-text"
    corpus.write_jsonl(texts, directory)
    (place / "tokenize.yaml").write_text(TOKENIZE.format(tokenizer=tokenizer))
    out: Dict[str, "np.ndarray"] = {}
    pieces: Dict[str, Dict[int, "np.ndarray"]] = collections.defaultdict(dict)
    with Run(binary, place / "tokenize.yaml", 1, place / "tokenize") as run:
        with millrace.connect(str(run.directory / "rank-0.sock"), tensors="numpy") as loader:
            for batch in loader:
                for s in batch.segments:
                    pieces[s.id][s.offset] = batch["tokens"][s.row, s.start : s.start + s.length].astype(np.uint16)
        run.wait()
    for document, parts in pieces.items():
        out[document] = np.concatenate([parts[offset] for offset in sorted(parts)])
    shutil.rmtree(directory)
    return [out[document] for document in sorted(out)]


def target(size: Size, step: int) -> Dict[str, float]:
    """Returns the weights of the mixture file at a step."""
    part = min(1.0, max(0.0, (step - size.steps // 5) / (size.steps // 2)))
    return {name: FIRST[name] + (THEN[name] - FIRST[name]) * part for name in FIRST}

"""Writes the files of this directory with the formats' own writers.

dolma 1.2.1 (dolma.tokenizer.memmap_writer), datatrove 0.10.1 (TokenizedFile), NumPy 2.4.6. llm.c has no package; its
header is written as llm.c's data scripts do.
"""

import json
import os
import sys
import types

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))

# dolma's package imports more than its writer needs.
for name in ("dolma", "dolma.core", "dolma.tokenizer"):
    module = types.ModuleType(name)
    found = next(p for p in sys.path if os.path.isdir(os.path.join(p, "dolma")))
    module.__path__ = [os.path.join(found, *name.split("."))]
    sys.modules[name] = module

from dolma.tokenizer.data_types import TokenizerOutput  # noqa: E402
from dolma.tokenizer.memmap_writer import MemmapWriter  # noqa: E402
from datatrove.pipeline.tokens.tokenizer import TokenizedFile  # noqa: E402

EOS = 50256
DOCS = [[1, 2, 3, EOS], [4, EOS, 5, EOS], [EOS], list(range(300)) + [EOS], [7, 8, 9]]
IDS = ["plain", 'with "quotes"', "with, comma", "line\nbreak", "crlf\r\nbreak"]


def dolma(name, dtype, docs):
    with MemmapWriter(os.path.join(here, name), np.dtype(dtype), max_tokens=4096) as w:
        for i, doc in enumerate(docs):
            assert w.write(TokenizerOutput.from_tokens(IDS[i % len(IDS)], "a/b.json.gz", i, doc))


dolma("part-0-00000", "uint16", DOCS)
dolma("part-1-00000", "uint32", [[70000 + t for t in doc] for doc in DOCS])

for name, vocab, docs in (("00000_tokens.ds", 50257, DOCS), ("00001_tokens.ds", 128256, [[128000] + d for d in DOCS])):
    # A vocabulary of more than 65,535 tokens takes 4 bytes a token.
    w = TokenizedFile(here, name, save_final_metadata=True, tokenizer_name_or_path="gpt2",
                      token_size=2 if vocab < 65536 else 4)
    for doc in docs:
        w.write(doc, None)
    w.close()

flat = [t for doc in DOCS for t in doc]
np.array(flat, dtype=np.uint16).tofile(os.path.join(here, "train.bin"))  # nanoGPT
np.save(os.path.join(here, "flat.npy"), np.array(flat, dtype=np.int64))
np.save(os.path.join(here, "rows.npy"), np.arange(12, dtype=np.uint16).reshape(3, 4))
np.save(os.path.join(here, "fortran.npy"), np.asfortranarray(np.arange(12, dtype=np.uint16).reshape(3, 4)))
np.save(os.path.join(here, "big.npy"), np.arange(4, dtype=">u2"))
np.save(os.path.join(here, "float.npy"), np.arange(4, dtype=np.float32))


def llmc(name, magic, dtype, tokens):
    header = np.zeros(256, dtype=np.int32)
    header[:3] = magic, 1, len(tokens)
    with open(os.path.join(here, name), "wb") as f:
        f.write(header.tobytes())
        f.write(np.array(tokens, dtype=dtype).tobytes())


# llm.c writes the end-of-text token before each document.
llmc("gpt2.bin", 20240520, np.uint16, [EOS, 1, 2, EOS, 3])
llmc("llama3.bin", 20240801, np.uint32, [128000, 1, 2, 128000, 3])

json.dump({"docs": DOCS, "eos": EOS}, open(os.path.join(here, "want.json"), "w"))

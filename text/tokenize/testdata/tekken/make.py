"""Write small Tekken files, and texts with the ids that mistral-common 1.13.1 gives for them.

Usage: make.py FILE...: each Tekken file gets a FILE.cases. Without a file, make.py trains the small ones beside it.
"""
import base64
import json
import pathlib
import random
import sys

from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
           r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
           r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PARTS = [
    "The quick brown fox's", "don't I'LL we'Ve", "camelCase HTTPServer", "Größe Äpfel", "Привет, мир", "こんにちは世界",
    "你好，世界。", "안녕하세요", "नमस्ते दुनिया", "مرحبا بالعالم", "e\u0301a\u0308", "ﬁ①Ⅷ", "👩‍👩‍👧‍👦🇩🇪", "0123456789", "x = f(y) // z",
    "\n\n", "\r\n", "\t", "   ", " ", "\u00a0", "\u3000", "\x00", "!!!???", "http://a.b/c?d=e&f", "a" * 70, " " * 90,
    "[INST]", "<s>", "</s>", "ǅ",
]


def texts(count):
    rng = random.Random(5)
    yield ""
    for n in range(count):
        if n % 3:
            yield rng.choice(["", " ", "\n"]).join(rng.choice(PARTS) for _ in range(rng.randrange(1, 9)))
        else:
            top = rng.choice([0x80, 0x250, 0x3000, 0x10000, 0x20000])
            points = (rng.randrange(top) for _ in range(rng.randrange(1, 40)))
            yield "".join(chr(c) for c in points if not 0xD800 <= c < 0xE000)


def write(path, count):
    t = Tekkenizer.from_file(path)
    cases = [{"Text": x, "IDs": t.encode(x, bos=False, eos=False)} for x in texts(count)]
    pathlib.Path(f"{path}.cases").write_text(json.dumps(cases, separators=(",", ":")))


def train(name, specials, listed, version):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(PARTS * 3, trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    of = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    merged = [key for key, _ in sorted(t.get_vocab().items(), key=lambda x: x[1]) if len(key) > 1]
    tokens = [bytes([b]) for b in range(256)] + [bytes(of[c] for c in key) for key in merged]
    content = {
        "config": {"pattern": PATTERN, "num_vocab_tokens": len(tokens), "default_vocab_size": specials + len(tokens) - 9,
                   "default_num_special_tokens": specials, "version": version},
        "vocab": [{"rank": i, "token_bytes": base64.b64encode(b).decode(), "token_str": b.decode(errors="replace")}
                  for i, b in enumerate(tokens)],
    }
    if listed:
        content["special_tokens"] = [{"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(listed)]
    path = pathlib.Path(__file__).parent / name
    path.write_text(json.dumps(content, separators=(",", ":")))
    write(str(path), 150)


if len(sys.argv) > 1:
    for file in sys.argv[1:]:
        write(file, 4000)
else:
    train("v3.json", 30, None, "v3")
    train("v13.json", 10, ["<unk>", "<s>", "</s>", "[TOOL]"], "v13")

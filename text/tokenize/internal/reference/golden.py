"""Writes testdata/golden.json: pip's tiktoken's ids of many texts, most of them as digests.

Run it with the interpreter of the benchmark's environment (bench/tokenizer.sh makes it), and with a folder that holds
the ranks as .tiktoken files (`go run ./bench/tokenbench -export NAME > FOLDER/NAME.tiktoken`):

    python golden.py FOLDER ../../testdata/golden.json

tokenbench cannot export p50k_base: take it from tiktoken-go-loader's assets. The files of OTHERS come from their
packages.

Use Python 3.12 or 3.13: their Unicode (15) is that of golang.org/x/text, which normalises for Qwen.

The file has these parts, from which the Go test makes the same texts again:

- code points: a block's text is, for each code point of the block, all contexts with "@" replaced by it;
- random texts: splitmix64 from the seed draws fragments and code points (see random_text);
- vectors: texts with their ids.

A digest is the first eight bytes of the SHA-256 of the ids, little-endian, four bytes each, in hexadecimal.
"""

import base64
import hashlib
import json
import pathlib
import sys
import unicodedata

import tiktoken
import tiktoken_ext.openai_public as openai_public

NAMES = ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"]

# Patterns of vocabularies that are not part of this repository, tried with the ranks of one that is. The texts are
# those of llama-models (llama3/tokenizer.py) and dashscope (tokenizers/qwen_tokenizer.py). Qwen normalises text first.
BORROWED = {
    "cl100k_base+llama3": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"""
    r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    "cl100k_base+qwen2": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"""
    r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
}
NORMALISED = "cl100k_base+qwen2+nfc"

# Vocabularies that are not part of this repository, by their files in the folder: those of pip's llama-models
# (llama3/tokenizer.model and llama4/tokenizer.model, renamed) and dashscope (resources/qwen.tiktoken).
OTHERS = {
    "llama3": ("llama3.model", BORROWED["cl100k_base+llama3"]),
    "llama4": ("llama4.model", "o200k_base"),
    "qwen": ("qwen.tiktoken", BORROWED["cl100k_base+qwen2"]),
}

BLOCK = 0x2000
BLOCKS = [*range(0, 0x34000, BLOCK), 0xE0000, 0x10E000]
SEEDS = 32
DRAWS = 3000

CONTEXTS = ["@", "a@b ", " @1", "A@@B's", "!@\n", "'@  @ x", "\r\n@\t@"]

FRAGMENTS = [
    " ", " ", " ", "  ", "    ", "                ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", "\u00a0", "\u3000",
    "\u2028", "\x85",
    "\x0b", "\x0c", "\x1c", "\x00", "\u200b", "\ufeff", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Ve",
    "'rE", "'\u017f",
    "'\u212a", "'", "''", "\u2019s", "'l", "'v", "'x", "the", "The", "THE", "ing", "tokenizer", "HTTPServer",
    "camelCase", "snake_case",
    "iPhone", "McDonald", "\u01c5a", "\u01c5", "\u00dfA", "\u0130i", "e\u0301", "\u0301", "\u0301A", "A\u0301B",
    "\u0903", "\u20e3", "1", "12", "123", "1234",
    "1234567", "\u0663\u0664", "\u2167", "\u00bd", "\u2460", "3.14", "0x1F", "1e-9", ".", ",", ";", "...", "!?", "(",
    ")", "{}", "[]", "==", "!=", "->", "//", "/*", "*/", "/",
    "#", "##", "$", "%", "&&", "<|endoftext|>", "<|", "|>", "----------------", "================================",
    "\\n", "\"", "`", "~", "^", "_", "__init__",
    "\u4f60\u597d", "\u4e2d\u6587\u5b57\u7b26", "\u65e5\u672c\u8a9e", "\u30ab\u30bf\u30ab\u30ca", "\ud55c\uad6d\uc5b4",
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439",
    "\u041f\u0440\u0438\u0432\u0435\u0442", "\u03b5\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u05e2\u05d1\u05e8\u05d9\u05ea",
    "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22", "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001d400\U0001d7d8",
    "\U00010400\U00010428", "\u02b0", "\u00aa", "\u00e9", "\u00c9COLE", "na\u00efve", "a" * 40, "ab" * 40, "A" * 33,
    "0" * 50, " " * 83, "\n" * 20, "\t" * 17, "x" * 200,
]

VECTORS = [
    "", "a", " ", "\n", "Hello, world!", "hello   world", "I'm sure you'll say it's DON'T", "x  ", "x \n ", "x \n y",
    "x\r\n\r\n  y", "  \n  ", "def f(x):\n    return x**2  # square\n",
    "1234567890", "3,141.59", "\u017f'\u017fa", "caf\u00e9 na\u00efve e\u0301", "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600",
    "HTTPServer iPhone XMLHttpRequest", "https://example.com/a/b?c=d&e=f", "path//to\n//x", "<|endoftext|>",
    "\t\tif (a != b) { return; }\n", "\u0301A", "A\u0301BC\u4e2dD", " " * 100, "a" * 300,
    "e\u0301 A\u030a o\u0302\u0323 s\u0323\u0307", "a" + "\u0301" * 40 + "\u0316b",
    "\u1100\u1161\u11a8 \uac00\u11a8 \u1100\u1161",
    "\u212b \u2126 \u0344 \u0958 \ufb1d \u2adc", "\u09c7\u09be \u0b47\u0b56 \U00011131\U00011127",
    "\u0345\u0301\u0308 \u0308\u0301",
    "\u0612\u0613" * 20 + "x", "\ufdfa \ufb01 \u00bd", "Vie\u0323\u0302t Nam va\u0300 12345",
]


def ranks(path: pathlib.Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def encoding(folder: pathlib.Path, name: str) -> tiktoken.Encoding:
    """The encoding exactly as tiktoken defines it, with its ranks from the folder and not from the network."""
    openai_public.load_tiktoken_bpe = lambda *_, **__: ranks(folder / f"{name}.tiktoken")
    return tiktoken.Encoding(**getattr(openai_public, name)())


def digest(ids: list[int]) -> str:
    return hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()[:16]


def block_text(start: int) -> str:
    chars = [chr(c) for c in range(start, start + BLOCK) if not 0xD800 <= c < 0xE000]
    return "".join(context.replace("@", c) for c in chars for context in CONTEXTS)


def random_text(seed: int) -> str:
    """A quarter of the draws are code points below 0x3000, a sixteenth any below 0x20000, the rest fragments."""
    state = seed
    out = []
    for _ in range(DRAWS):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        z ^= z >> 31
        kind, value = z % 16, z >> 4
        if kind < 4:
            out.append(chr(value % 0x3000))
        elif kind == 4:
            c = value % 0x20000
            out.append(chr(c) if not 0xD800 <= c < 0xE000 else "?")
        else:
            out.append(FRAGMENTS[value % len(FRAGMENTS)])
    return "".join(out)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    encodings = {name: encoding(folder, name) for name in NAMES}
    for name, pattern in BORROWED.items():
        mergeable = encodings[name.split("+")[0]]._mergeable_ranks
        encodings[name] = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=mergeable, special_tokens={})

    for name, (file, pattern) in OTHERS.items():
        pattern = encodings[pattern]._pat_str if pattern in encodings else pattern
        mergeable = ranks(folder / file)
        encodings[name] = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=mergeable, special_tokens={})

    def ids(text: str) -> dict[str, list[int]]:
        made = {name: e.encode_ordinary(text) for name, e in encodings.items()}
        normal = unicodedata.normalize("NFC", text)
        made[NORMALISED] = encodings["cl100k_base+qwen2"].encode_ordinary(normal)
        made["qwen"] = encodings["qwen"].encode_ordinary(normal)
        return made

    def digests(text: str) -> dict[str, str]:
        return {name: digest(made) for name, made in ids(text).items()}

    golden = {
        "tiktoken": tiktoken.__version__,
        "unicode": unicodedata.unidata_version,
        "block": BLOCK,
        "contexts": CONTEXTS,
        "blocks": {f"{start:06x}": digests(block_text(start)) for start in BLOCKS},
        "draws": DRAWS,
        "fragments": FRAGMENTS,
        "seeds": {str(seed): digests(random_text(seed)) for seed in range(SEEDS)},
        "vectors": [
            {"text": text, "ids": ids(text)} for text in VECTORS
        ],
    }
    with open(sys.argv[2], "w") as f:
        json.dump(golden, f, indent=None, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()

"""Writes golden.json: the parts into which the engines divide texts by expressions.

Needs tokenizers==0.23.3 and tiktoken==0.14.0. With a number N as argument, it writes N cases per expression to stdout.
"""

import json
import pathlib
import random
import sys

import tiktoken
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
HAN = r"[\p{Han}]+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
WORD = r"[^\r\n\p{L}\p{N}]?"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BOTH = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": CONTRACTION + "|" + WORD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": f"{WORD}[{UPPER}]*[{LOWER}]+|{WORD}[{UPPER}]+[{LOWER}]*" + r"|\p{N}" + REST,
    "kimi": f"{HAN}|{WORD}[{UPPER}&&[^\\p{{Han}}]]*[{LOWER}&&[^\\p{{Han}}]]+{CONTRACTION}?"
            f"|{WORD}[{UPPER}&&[^\\p{{Han}}]]+[{LOWER}&&[^\\p{{Han}}]]*{CONTRACTION}?"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    "kana": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "digits": r"\p{N}{1,3}",
    "falcon": "[0-9][0-9][0-9]",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "words": r"\w+|[^\w\s]+",
    "qwen3.5": CONTRACTION + "|" + WORD + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "groups": r"(?:\p{Lu}\p{Ll}*){2,3}|(\d+)(?=\s)|(?>a+b?)a|[\p{Greek}\p{Cyrillic}]+?\b".replace(r"\b", "") + r"|\S\s??",
    "lazy": r"a+?b|a{2,4}?|\s{1,2}?\S|[^\x61-\x63]+?(?=[a-c])|\D",
    "possessive": r"a++b|a?+a|[ab]*+c|\S*\d|\P{L}",
    "fold": r"(?i:sk|[x-z]+|(?:don't))|(?-i:S)|.",
    "negated": r"[^\P{L}a-f]+|[\P{N}&&\P{L}&&\S]+|\s+\z|\s",
    "escapes": r"[\x41\-\]\[^]+|[\\\.]{2}|\t|\(|\u0436|[\d&&[^5]]+",
}
ONLY = {
    "oniguruma": {"line": r"\w+$|\s+$|.", "hat": r"\p{^L}+|\p{L}", "brace": r"\{|\}|[{}]x"},
    "fancy_regex": {"cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
                              r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
                    "scripts": r"\p{Script=Han}+|\pL+|\PL"},
}
ALPHABETS = [
    "ab cAB 12\n", "a'sS tTrRvelLmd\u017f\u212aK", " \t\r\n\u00a0\u3000x.", "中文かなカナ漢字。，、abc 1", "éÉ\u0301ñǅʰаЖжα Ω1",
    "0123456789٣½²Ⅷ a", "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~ aZ\n", "\u200c\u200d\ud7a3\U0001f600\U00020000\ue000\u0378 a\n",
    "xyzXYZ skSK.5", "aabbcc  11", "\u0e01\u0e33\u0939\u093f\u0628\u064e\u05d0 x,\u060c\u06d4", "\x00\x0b\x0c\x1c\x85 a\n",
]


def texts(rng, count):
    for n in range(count):
        letters = ALPHABETS[n % len(ALPHABETS)]
        if n >= len(ALPHABETS) and n % 3 == 0:
            letters = "".join(ALPHABETS)
        yield "".join(rng.choice(letters) for _ in range(rng.randrange(1, 28)))


def oniguruma(expression, text):
    parts = Split(Regex(expression), "isolated").pre_tokenize_str(text)
    return [len(text[:end].encode()) for _, (_, end) in parts]


def fancy_regex(expression, text):
    """Every piece of the text is a token, so a match is one token. Text between matches is left out."""
    whole = text.encode()
    ranks = {bytes([b]): b for b in range(256)}
    for start in range(len(whole)):
        for end in range(start + 2, len(whole) + 1):
            ranks.setdefault(whole[start:end], len(ranks))
    encoding = tiktoken.Encoding("x", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    parts = [encoding.decode_single_token_bytes(t) for t in encoding.encode_ordinary(text)]
    if b"".join(parts) != whole:
        return None
    return [sum(map(len, parts[:n + 1])) for n in range(len(parts))]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    rng, cases = random.Random(count), []
    for engine, divide in (("oniguruma", oniguruma), ("fancy_regex", fancy_regex)):
        for expression in [*BOTH.values(), *ONLY[engine].values()]:
            for text in texts(rng, count):
                if (ends := divide(expression, text)) is not None:
                    cases.append([engine, expression, text, ends])
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    if len(sys.argv) > 1:
        print(f"[{lines}]")
    else:
        pathlib.Path(__file__).parent.joinpath("golden.json").write_text(f"[{lines}]\n")


main()

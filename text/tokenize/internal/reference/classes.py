"""Writes classes.bin: the character classes of the regex engine inside pip's tiktoken.

The script asks the engine itself, one code point at a time. So the classes are
those of the reference whatever Unicode version Go or Python have. Run it with the
interpreter of the benchmark's environment (bench/tokenizer.sh makes it):

    python classes.py ../split/classes.bin

The file is a sequence of runs that cover the code points from 0 upward: the length as an
unsigned varint, then one byte of class bits (see classes.go). Surrogates have no class.
"""

import sys

import tiktoken

LETTER, NUMBER, SPACE, UPPER, LOWER = 1, 2, 4, 8, 16

PATTERNS = {
    LETTER: r"\p{L}",
    NUMBER: r"\p{N}",
    SPACE: r"\s",
    UPPER: r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
    LOWER: r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
}


def members(pattern: str, text: str) -> set[int]:
    """The code points of text that match the pattern."""
    single_bytes = {bytes([b]): b for b in range(256)}
    encoding = tiktoken.Encoding(
        "classes", pat_str=pattern, mergeable_ranks=single_bytes, special_tokens={}
    )
    return set(map(ord, encoding.decode(encoding.encode_ordinary(text))))


def varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def main() -> None:
    text = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    classes = bytearray(0x110000)
    for bit, pattern in PATTERNS.items():
        for c in members(pattern, text):
            classes[c] |= bit
    out = bytearray()
    start = 0
    for c in range(1, len(classes) + 1):
        if c == len(classes) or classes[c] != classes[start]:
            out += varint(c - start) + bytes([classes[start]])
            start = c
    with open(sys.argv[1], "wb") as f:
        f.write(out)


if __name__ == "__main__":
    main()

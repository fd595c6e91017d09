"""Writes ../tables.bin: the characters that parts of tokenizers 0.23.3 change or divide at. Usage: make.py

The file has the sets in the order of SETS: the number of runs of characters, and for each its distance from the run
before and its length. Then come the lower cases: their number, and for each the distance of its character from the
one before, the length in bytes and the UTF-8. All numbers are varints.
"""
import pathlib

from tokenizers import normalizers, pre_tokenizers

ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def bert(**on):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**(off | on)).normalize_str


def words(c):
    return [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str("a" + c + "b")]


clean, spaced, bare = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True)
accents, lower = normalizers.StripAccents().normalize_str, normalizers.Lowercase().normalize_str
digits = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str
whitespace = pre_tokenizers.Whitespace().pre_tokenize_str
DIVIDED = {c: words(c) for c in ALL}
SETS = [
    [c for c in ALL if clean("a" + c) == "a"],
    [c for c in ALL if c != " " and clean(c + "a") == " a"],
    [c for c in ALL if spaced(c) != c],
    [c for c in ALL if bare("a" + c) == "a"],
    [c for c in ALL if accents("a" + c) == "a"],
    [c for c in ALL if len(DIVIDED[c]) == 3],
    [c for c in ALL if DIVIDED[c] == ["a", "b"]],
    [c for c in ALL if len(digits("a" + c + "b")) == 3],
    [c for c in ALL if len(whitespace("a" + c + "b")) == 1],
]


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


def spans(points):
    runs = []
    for c in points:
        if runs and runs[-1][1] == c:
            runs[-1][1] += 1
        else:
            runs.append([c, c + 1])
    return runs


if __name__ == "__main__":
    table = b""
    for chosen in SETS:
        runs, at = spans([ord(c) for c in chosen]), 0
        table += varint(len(runs))
        for start, end in runs:
            table += varint(start - at) + varint(end - start)
            at = end
    cased, at = [c for c in ALL if lower(c) != c], 0
    table += varint(len(cased))
    for c in cased:
        text = lower(c).encode()
        table += varint(ord(c) - at) + varint(len(text)) + text
        at = ord(c)
    (pathlib.Path(__file__).parent.parent / "tables.bin").write_bytes(table)
    print([len(s) for s in SETS], len(cased), len(table))

"""Writes golden.json: texts with their normal forms by tokenizers 0.23.3. Usage: make.py"""
import json
import pathlib
import random
import unicodedata

from tokenizers import normalizers

FORMS = {"C": normalizers.NFC(), "D": normalizers.NFD(), "KC": normalizers.NFKC(), "KD": normalizers.NFKD()}
ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
MARKS = [c for c in ALL if unicodedata.combining(c)]
COMPOSED = [c for c in ALL if unicodedata.decomposition(c)]
LATER = [c for c in ALL if unicodedata.decomposition(c) and FORMS["KD"].normalize_str(c) == c
         or unicodedata.combining(c) and FORMS["D"].normalize_str("a\u0345" + c) == "a\u0345" + c]


def text(rng):
    kinds = [MARKS, MARKS, COMPOSED, COMPOSED, LATER, ["a", "e", " ", "\u1100", "\u1161", "\u11a8", "\uff9e"]]
    return "".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randrange(1, 9)))


if __name__ == "__main__":
    rng = random.Random(1)
    texts = ["".join(LATER)] + [text(rng) for _ in range(500)]
    cases = [{"text": t} | {name: form.normalize_str(t) for name, form in FORMS.items()} for t in texts]
    path = pathlib.Path(__file__).with_name("golden.json")
    path.write_text("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")

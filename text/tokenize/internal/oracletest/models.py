"""Trains the small models of the tests and writes the ids that their own libraries give.

    pip install sentencepiece==0.2.3 tokenizers==0.23.3
    python models.py FOLDER
    tar --sort=name --mtime=@0 --owner=0 --group=0 -C FOLDER -cf - . | zstd -19 --long=27 -o models.tar.zst

Each model NAME.model has a list of texts with their ids in NAME.json. The texts are the same on each run.
"""

import io
import json
import os
import pathlib
import random
import sys
import unicodedata

import sentencepiece
import tokenizers

CORPUS = """
The quick brown fox jumps over the lazy dog. It was the best of times, it was the worst of times.
All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience.
Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison.
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt.
Все люди рождаются свободными и равными в своём достоинстве и правах. Они наделены разумом и совестью.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。カタカナ ﾊﾝｶｸ ｶﾞｷﾞ
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았다.
يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
def main(args):\n    for i in range(10):\n        print(i, args[i] + "x", 3.14159, 0xff)
ﬁne ﬂow Ａｂｃ １２３ ① ½ ㎏ ™ é é Å Å ＜tag＞ 𝒜𝓃 𝐁 😀👍🏽 👨‍👩‍👧 naïve façade coöperate
""".strip().split("\n")

LOOKALIKES = ["<unk>", "<s>", "</s>", "<0x0A>", "<0xFF>", "▁", "▁▁", "<sep>", "<ctl>", "<user>",
              "user sym", "##a"]
ODD = ["\u0085", "\u00a0", "\u200b", "\u200d", "\u3000", "\ufeff", "\ufffd", "\u2028", "\t", "\n", "\r", "\r\n", "\0",
       "\x01", "\x7f", "\u0300", "\u0308", "\u0301\u0308", "\u3099", "ｶﾞ", "ﾊﾟ", "\u1100\u1161\u11a8", "가", "\u0600a",
       "ｱﾞ", "é", "é", "e\u0323\u0302", "א\u05bc", "👨‍👩‍👧", "🇩🇪", "ﷺ", "İ", "ß", "Ǆ", "①", "½",
       "ﬃ", "🏽", "\u0e33", "க்ஷி"]


def texts(seed):
    rng = random.Random(seed)
    yield from ["", " ", "  ", "\n", "a", " a", "a ", "  a  b  ", "\t a\t\tb \n\n c", "a" * 300, " " * 99, "ab" * 200]
    yield from CORPUS + LOOKALIKES + ODD
    words = [w for line in CORPUS for w in line.split(" ")]
    for _ in range(120):
        parts = []
        for _ in range(rng.randrange(1, 9)):
            kind = rng.randrange(8)
            if kind < 3:
                parts.append(rng.choice(words))
            elif kind == 3:
                parts.append(rng.choice(ODD) + rng.choice(words))
            elif kind == 4:
                parts.append(rng.choice(LOOKALIKES))
            elif kind == 5:
                parts.append("".join(rng.choice(words)[:2] + rng.choice(ODD) for _ in range(3)))
            elif kind == 6:
                parts.append(unicodedata.normalize(rng.choice(["NFD", "NFKD", "NFC"]), rng.choice(words)))
            else:
                parts.append("".join(letter(rng) for _ in range(rng.randrange(1, 6))))
        yield rng.choice(["", " ", "  "]).join(parts)


def letter(rng):
    while True:
        point = rng.randrange(rng.choice([0x80, 0x3000, 0x11000, 0x110000]))
        if not 0xD800 <= point < 0xE000:
            return chr(point)


def train(**options):
    model = io.BytesIO()
    settings = dict(model_type="bpe", vocab_size=600, character_coverage=0.98, hard_vocab_limit=False,
                    minloglevel=2, num_threads=1) | options
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS * 3), model_writer=model, **settings)
    return model.getvalue()


MODELS = {
    "bpe_llama": dict(byte_fallback=True, vocab_size=800, normalization_rule_name="identity", split_digits=True,
                      remove_extra_whitespaces=False, allow_whitespace_only_pieces=True),
    "bpe_nfkc": dict(user_defined_symbols=["<sep>", "<user>", "user sym", "de", "🇩"], control_symbols=["<ctl>"]),
    "bpe_suffix": dict(treat_whitespace_as_suffix=True, vocab_size=500),
    "bpe_crossing": dict(split_by_whitespace=False, split_by_unicode_script=False, split_by_number=False,
                         add_dummy_prefix=False, byte_fallback=True, vocab_size=900,
                         normalization_rule_name="identity"),
    "unigram_nfkc": dict(model_type="unigram", vocab_size=500, user_defined_symbols=["<sep>", "de", "é"],
                         control_symbols=["<ctl>"]),
    "unigram_bytes": dict(model_type="unigram", vocab_size=700, byte_fallback=True, split_digits=True,
                          remove_extra_whitespaces=False),
}


def main(folder):
    folder = pathlib.Path(folder)
    for name, options in MODELS.items():
        model = train(**options)
        write(folder, name, model)
    write_parts(folder, train(**MODELS["unigram_nfkc"]))
    write(folder, "bpe_unused", unused(train(**MODELS["bpe_llama"])))
    write(folder, "unigram_unused", unused(train(**MODELS["unigram_nfkc"])))
    rng = random.Random("scores")
    for name, score in SCORES.items():
        write(folder, name, scored(train(**MODELS["unigram_bytes"]), lambda: score(rng)), list(ties(name)))


# Scores of few values give many divisions of equal sums. Sums beyond 100,000 begin anew.
SCORES = {
    "unigram_ties": lambda rng: -rng.randrange(1, 60) / 10,
    "unigram_large": lambda rng: -3000 - rng.randrange(60) / 10,
}


def scored(model, score):
    """Returns the model with other scores of its normal pieces, and with some symbols of the user."""
    proto = parsed(model)
    for piece in proto.pieces:
        if piece.type == 1:
            piece.score = score()
    known = {piece.piece for piece in proto.pieces}
    for text in ["der", "ght", "II", "I\u2581V"]:
        if text not in known:
            proto.pieces.add(piece=text, score=0, type=4)
    return proto.SerializeToString()


def ties(seed):
    rng = random.Random(seed)
    words = [w for line in CORPUS for w in line.split(" ")]
    for _ in range(150):
        yield " ".join(rng.choice(["I", "II", "V", "VI", "III", "X"]) for _ in range(rng.randrange(1, 12)))
        yield "".join(rng.choice(words)[:rng.randrange(1, 8)] for _ in range(rng.randrange(1, 60)))
    yield " ".join(rng.choice(words) for _ in range(1000))


def unused(model):
    """Returns the model with every fifth normal piece marked as unused, as a restricted vocabulary has it."""
    proto = parsed(model)
    for i, piece in enumerate(proto.pieces):
        if piece.type == 1 and i % 5 == 0 and len(piece.piece) > 1:
            piece.type = 5
    return proto.SerializeToString()


def write_parts(folder, model):
    """Writes the ids and texts that the parts of tokenizers give: rules, Unigram and WordPiece."""
    proto = parsed(model)
    charsmap = proto.normalizer_spec.precompiled_charsmap
    rules = tokenizers.normalizers.Precompiled(charsmap)
    pieces = [(p.piece, p.score) for p in proto.pieces]
    unigram = tokenizers.models.Unigram(pieces, 0, False)
    words = ["[UNK]"] + sorted({p.piece.replace("\u2581", "") for p in proto.pieces} - {""})
    words += ["##" + w for w in words[1:]]
    wordpiece = tokenizers.models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]",
                                            max_input_chars_per_word=20)
    cases = []
    for text in texts("parts"):
        normal = rules.normalize_str(text)
        plain = normal.replace(" ", "\u2581")
        word = normal.split(" ")[0]
        tokens = wordpiece.tokenize(word) if word else []
        cases.append({"text": text, "normal": normal,
                      "unigram": [t.id for t in (unigram.tokenize(plain) if plain else [])],
                      "word": word, "wordpiece": [t.id for t in tokens]})
    (folder / "parts.charsmap").write_bytes(charsmap)
    save(folder / "parts.json", {"pieces": pieces, "words": words, "cases": cases})


def parsed(model):
    os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
    from sentencepiece import sentencepiece_model_pb2
    return sentencepiece_model_pb2.ModelProto.FromString(model)


def save(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def write(folder, name, model, more=()):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    cases = []
    for text in [*texts(name), *more]:
        cases.append({"text": text, "ids": processor.encode(text)})
    (folder / f"{name}.model").write_bytes(model)
    save(folder / f"{name}.json", cases)


if __name__ == "__main__":
    main(sys.argv[1])

"""Train small SentencePiece models in model directories, and write texts with the ids that sentencepiece 0.2.1 gives.

A token that tokenizer_config.json calls special stays text. So the reference is the library with a copy of the model in
which its piece is a control piece under the name that the file gives it.
"""
import io
import json
import os
import pathlib
import random
import unicodedata

os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
import sentencepiece  # noqa: E402
from sentencepiece import sentencepiece_model_pb2  # noqa: E402

CORPUS = [
    "The quick brown fox jumps over the lazy dog.", "All human beings are born free and equal in dignity and rights.",
    "Größe Äpfel straße, Tous les êtres humains naissent libres", "Все люди рождаются свободными и равными",
    "すべての人間は、生まれながらにして自由であり、", "你好，世界。", "안녕하세요", "नमस्ते दुनिया", "مرحبا بالعالم",
    "def main(args):\n    for i in range(10):\n        print(i, 3.14159)", "ﬁ①Ⅷ e\u0301a\u0308 👩‍👩‍👧‍👦🇩🇪",
]
SYMBOLS = ["[UNUSED_TOKEN_1]", "<start>", "<sep>", "<sep>>"]
ODD = SYMBOLS + ["<|im_start|>", "<|end|>", "<s>", "</s>", "<unk>", "<ctl>", "<st", "<start", "<sep", "<0x0A>", "▁", "▁▁",
                 " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\ufeff", "\u200b", "\x00", "\x7f", "a" * 70, " " * 50]


def texts(seed, count):
    rng = random.Random(seed)
    yield from ["", *ODD, *(a + b for a in SYMBOLS for b in SYMBOLS)]
    words = [w for line in CORPUS for w in line.split(" ")]
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 10)):
            kind = rng.randrange(5)
            if kind < 2:
                parts.append(rng.choice(words))
            elif kind == 2:
                parts.append(rng.choice(ODD))
            elif kind == 3:
                parts.append(unicodedata.normalize(rng.choice(["NFD", "NFKD"]), rng.choice(words)))
            else:
                top = rng.choice([0x80, 0x3000, 0x20000])
                points = (rng.randrange(top) for _ in range(rng.randrange(1, 8)))
                parts.append("".join(chr(c) for c in points if not 0xD800 <= c < 0xE000))
        yield rng.choice(["", " ", "  "]).join(parts)


def token(content, special=True):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": special}


def make(name, config, renamed, count=150, **options):
    """renamed has the special tokens by the text of their pieces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3), model_writer=model, minloglevel=2, num_threads=1, hard_vocab_limit=False,
        user_defined_symbols=SYMBOLS, control_symbols=["<ctl>"], **options)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    size, decoder = len(proto.pieces), {"0": token("<unk>"), "1": token("<s>"), "2": token("</s>")}
    for id, piece in enumerate(proto.pieces):
        if piece.piece in renamed:
            piece.piece, piece.type = renamed[piece.piece], 3
            decoder[str(id)] = token(piece.piece)
        elif piece.piece == "<sep>":
            decoder[str(id)] = token("<sep>", False)
    decoder[str(size)] = token("<|end|>")
    reference = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    folder = pathlib.Path(__file__).parent / name
    folder.mkdir(exist_ok=True)
    cases = [{"Text": x, "IDs": reference.encode(x)} for x in texts(name, count)]
    for file, content in [("tokenizer_config.json", config | {"added_tokens_decoder": decoder}), ("cases.json", cases)]:
        (folder / file).write_text(json.dumps(content, separators=(",", ":")) + "\n")
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    print(name, size, len(cases))


if __name__ == "__main__":
    renamed = {"[UNUSED_TOKEN_1]": "<|im_start|>", "<start>": "<start>", "<ctl>": "<tool>"}
    make("bpe", {"tokenizer_class": "LlamaTokenizer", "eos_token": {"content": "<|end|>"}, "add_prefix_space": True},
         renamed, model_type="bpe", vocab_size=600, byte_fallback=True, normalization_rule_name="identity",
         remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True)
    make("unigram", {"bos_token": "<|im_start|>", "eos_token": None}, renamed, model_type="unigram", vocab_size=400,
         normalization_rule_name="identity", add_dummy_prefix=False)

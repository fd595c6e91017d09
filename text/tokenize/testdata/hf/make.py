"""Write texts with the ids that tokenizers 0.23 gives, for tokenizer.json files and for small trained ones.

Usage: make.py FOLDER...: each has a tokenizer.json and gets a cases.json. Without a folder, make.py trains the small
models beside it. A document's special tokens stay text, so encode_special_tokens is set.
"""
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

PARTS = [
    "The quick brown fox's", "don't I'LL we'Ve", "Größe Äpfel straße", "Привет, мир", "こんにちは世界", "你好，世界。",
    "안녕하세요", "नमस्ते दुनिया", "مرحبا بالعالم", "שלום", "ไทย", "e\u0301a\u0308o\u0302", "\u1112\u1161\u11ab", "ﬁ①Ⅷ",
    "👩‍👩‍👧‍👦🇩🇪", "0123456789", "3.14159", "x = f(y) // z", "\n\n", "\r\n", "\t", "   ", " ", "  \n ", "\u00a0", "\u3000",
    "\u2028", "\u0085", "\u200b", "\x00", "'ſ 'S 'ſ", "ꟾ", "ǅ", "!!!???", "http://a.b/c?d=e&f", "a" * 70, " " * 90,
]


def texts(tokens, seed):
    rng = random.Random(seed)
    special = tokens + [t[:-1] for t in tokens] + [t + t for t in tokens[:40]]
    for start in range(0, 0x110000, 64):
        if 0xD800 <= start < 0xE000 or 0x3000 + 0x400 < start < 0x9F00 or 0x20000 <= start and start % 4096:
            continue
        yield " ".join(chr(c) + "a" for c in range(start, start + 64))
    yield from special
    yield ""
    for _ in range(4000):
        n = rng.randrange(1, 12)
        pick = [rng.choice(PARTS if rng.random() < 0.8 else special or PARTS) for _ in range(n)]
        yield rng.choice(["", " ", "\n"]).join(pick)
    for _ in range(1500):
        top = rng.choice([0x80, 0x250, 0x3000, 0x10000, 0x20000])
        points = (rng.randrange(top) for _ in range(rng.randrange(1, 40)))
        yield "".join(chr(c) for c in points if not 0xD800 <= c < 0xE000)


def write(folder, keep=1.0, more=()):
    t = Tokenizer.from_file(str(folder / "tokenizer.json"))
    t.encode_special_tokens = True
    rng = random.Random(1)
    content = json.loads((folder / "tokenizer.json").read_text())
    tokens = [a["content"] for a in content["added_tokens"]][:100]
    chosen = [x for x in texts(tokens, 7) if keep == 1 or len(x) < 130 and rng.random() < keep] + list(more)
    cases = [{"Text": x, "IDs": t.encode(x, add_special_tokens=False).ids} for x in chosen]
    (folder / "cases.json").write_text(json.dumps(cases, separators=(",", ":")))
    print(folder.name, len(cases), tokenizers.__version__)


QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")


def train(name, pre, normalizer, added, special, more=(), **options):
    t = Tokenizer(models.BPE(**options))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(PARTS * 3 + [" ".join(PARTS)], trainers.BpeTrainer(
        vocab_size=450, initial_alphabet=alphabet, special_tokens=special, show_progress=False))
    t.add_tokens(added)
    folder = pathlib.Path(__file__).parent / name
    folder.mkdir(exist_ok=True)
    t.save(str(folder / "tokenizer.json"), pretty=False)
    write(folder, 0.03, more)


ADDED = [AddedToken("<tool>", normalized=False), AddedToken("quick", normalized=True, single_word=True),
         AddedToken("<l>", normalized=False, lstrip=True), AddedToken("<r>", normalized=False, rstrip=True)]
SIDES = ["a  <l>  b", "a  <r>  b <r>", "<l><r> <l>", "quick", "quickly quick", " quick ", "a<tool> b", "<tool>", " <r>x",
         "<tool><l> <r> quick"]


def finish(t, name):
    t.add_special_tokens(["<s>", "</s>"])
    t.add_tokens(ADDED)
    folder = pathlib.Path(__file__).parent / name
    folder.mkdir(exist_ok=True)
    t.save(str(folder / "tokenizer.json"), pretty=False)
    write(folder, 0.03, SIDES)


def chars(name, normalizer, pre, fallback):
    """Train BPE over characters, with the tokens of all bytes or with a fused unk."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=fallback))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    reserved = ["<unk>"] + [f"<0x{b:02X}>" for b in range(256) if fallback]
    t.train_from_iterator([p for p in PARTS[:3] + PARTS[14:] if p.isascii()] * 3 + [" ".join(PARTS[:9])],
        trainers.BpeTrainer(vocab_size=600, special_tokens=reserved, show_progress=False))
    content = json.loads(t.to_str())  # bytes and unk are ordinary tokens of such files
    content["added_tokens"] = []
    t = Tokenizer.from_str(json.dumps(content))
    if pre:
        t.pre_tokenizer = pre
    else:
        content["pre_tokenizer"] = None
        t = Tokenizer.from_str(json.dumps(content))
    finish(t, name)


def word_piece(name, normalizer, **options):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", **options))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(PARTS * 3 + [" ".join(PARTS)], trainers.WordPieceTrainer(
        vocab_size=350, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=None, special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    finish(t, name)


def unigram(name, pre, normalizer):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.train_from_iterator(PARTS * 3 + [" ".join(PARTS)], trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False))
    content = json.loads(t.to_str())
    content["added_tokens"] = []
    finish(Tokenizer.from_str(json.dumps(content)), name)


if __name__ == "__main__" and len(sys.argv) > 1:
    for path in sys.argv[1:]:
        write(pathlib.Path(path))
elif __name__ == "__main__":
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    qwen = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), bare])
    train("plain", whole, None, [], ["<|endoftext|>"])
    train("digits", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), whole]), None, [],
          ["<|endoftext|>"])
    train("added", qwen, normalizers.NFC(),
          [AddedToken("<tool>", normalized=False), AddedToken("<tool>>", normalized=False),
           AddedToken("e\u0301a", normalized=True), AddedToken("quick", normalized=True)],
          ["<s>", "</s>", "<tool>x"], ignore_merges=True)

    deepseek = [pre_tokenizers.Split(Regex(r), "isolated")
                for r in (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK)]
    train("deepseek", pre_tokenizers.Sequence([*deepseek, bare]), None, [], ["<s>"])
    falcon = [pre_tokenizers.Punctuation("contiguous"), whole, pre_tokenizers.Digits(individual_digits=False),
              pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]
    train("falcon", pre_tokenizers.Sequence(falcon), None, [], ["<|endoftext|>"])
    train("runs", pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.Punctuation(), whole]), None, [],
          ["<|endoftext|>"])
    train("stages", pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), whole]), None, [], ["<s>"])
    prefix, bare_prefix = pre_tokenizers.ByteLevel(), pre_tokenizers.ByteLevel(use_regex=False)
    prefixed = [*ADDED, AddedToken("Größe", normalized=True)]
    train("prefix", prefix, normalizers.NFC(), prefixed, ["<s>", "</s>"], more=SIDES)
    parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("contiguous"), prefix]
    train("prefixes", pre_tokenizers.Sequence(parts), None, prefixed, ["<s>"], more=SIDES)
    train("pieces", pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), bare_prefix]), None, [],
          ["<s>"])
    train("whole", bare, None, prefixed, ["<s>"], more=SIDES)
    train("ones", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bare]), None, [], ["<s>"])
    chars("llama", normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, True)
    chars("gemma", normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"), True)
    chars("mistral", None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), True)
    chars("replace", normalizers.Sequence([
        normalizers.Replace(Regex(" {2,}"), "▁"), normalizers.Replace(Regex(r"\p{N}{3}(?!\p{N})|[\u200b\ufeff]+"), "#$1"),
        normalizers.Replace(Regex(r"[\r\n]+"), "")]), pre_tokenizers.Metaspace(prepend_scheme="always"), False)
    chars("firsts", normalizers.Replace(Regex(" {2,}"), " "), pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(),
        pre_tokenizers.Metaspace(prepend_scheme="first")]), True)
    chars("unk", normalizers.NFC(), pre_tokenizers.Metaspace(prepend_scheme="always"), False)
    always = pre_tokenizers.Metaspace(prepend_scheme="always")
    unigram("unigram", always, normalizers.Sequence([normalizers.Nmt(), normalizers.NFC(), normalizers.Strip()]))
    unigram("albert", always, normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKD(),
            normalizers.StripAccents(), normalizers.Lowercase()]))
    t5 = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), always])
    unigram("t5", t5, normalizers.NFKC())
    chars("words", None, pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True)]), False)
    chars("marks", normalizers.Lowercase(), pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation(), pre_tokenizers.Digits(), pre_tokenizers.WhitespaceSplit()]), False)
    word_piece("bert", normalizers.BertNormalizer())
    word_piece("cased", normalizers.Sequence([normalizers.NFKC(), normalizers.BertNormalizer(
        handle_chinese_chars=False, lowercase=False)]), max_input_chars_per_word=12, continuing_subword_prefix="_")

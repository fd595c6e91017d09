"""Writes table.json: ids of tokenizers 0.23.3 for each part that it can serialise, and for parts behind each other.

Usage: table.py                 table.json beside it
       table.py FOLDER N        FOLDER/table.json with the same rows and N more texts
       table.py FOLDER N all    FOLDER/table.json with all normalizers x pre-tokenizers x models

`go test ./text/tokenize -run TestPartsOfTokenizerJSON` compares table.json, and MILLRACE_TABLE names another one.
Rows of many texts have a digest of all ids in place of the ids.
"""
import json
import pathlib
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers as n, pre_tokenizers as p, processors, trainers

from make import PARTS, QWEN2

HOSTILE = [
    "", " ", "  ", "a", " a", "a ", "\n", "\t\n x", "The quick  brown fox's 123 45.6!",
    "Größe ÄPFEL straße İI ıi ǅ",
    "e\u0301a\u0308o\u0302 \u00e9 \u1e69 s\u0323\u0307 s\u0307\u0323", "\u0301x \u0300\u0301", "ﬁ①Ⅷ½ Ａｂｃ ㎏ ｶﾞ ﷺ",
    "\u1112\u1161\u11ab 한 각", "你好，世界。こんにちは カタカナー", "नमस्ते दुनिया क्षि", "مرحبا بالعالم", "👩‍👩‍👧‍👦🇩🇪🏽",
    "a-b--c -d- _e_",
    "x = f(y) // z;\r\n\tif  (q)", "\u00a0\u3000\u2028\u0085\u200b\ufeff z", "\x00\x01\x7f\ufffd", "▁a ▁▁b", "ſ K Å ς Σ ΑΣ",
    "áé\u0327\u0301 \u05bc\u05b8 \u0f71\u0f72\u0f74 \U0001d15e", "\u0898a \u32ff \ua7f2 \U00016d6a",
    "<s> [UNK] aaaaaaaaaaaaaaaaaaaaaaaaa",
    "it's 'tis don'T we've", "1234567890 ١٢٣ ²³¹ ½", "`` '' “q” «r» ¿¡", "camelCase HTTPServer", "٪ ؟ 。、!?",
]

NORMALIZERS = {
    "none": None, "NFC": n.NFC(), "NFD": n.NFD(), "NFKC": n.NFKC(), "NFKD": n.NFKD(), "Lowercase": n.Lowercase(),
    "StripAccents": n.StripAccents(), "Strip": n.Strip(), "StripLeft": n.Strip(True, False),
    "StripRight": n.Strip(False, True), "Nmt": n.Nmt(), "Prepend": n.Prepend("▁"), "PrependText": n.Prepend("ab "),
    "Replace": n.Replace(" ", "▁"), "ReplaceText": n.Replace("a", "éé"), "ReplaceByNothing": n.Replace("qu", ""),
    "ReplaceRegex": n.Replace(Regex(r"\s+"), " "), "ByteLevel": n.ByteLevel(), "Bert": n.BertNormalizer(),
    "BertBare": n.BertNormalizer(False, False, False, False),
    "BertCased": n.BertNormalizer(strip_accents=True, lowercase=False),
    "Empty": n.Sequence([]), "NFCTwice": n.Sequence([n.NFC(), n.NFC()]),
    "Gemma": n.Sequence([n.Strip(), n.NFKC(), n.Lowercase(), n.Replace(" ", "▁")]),
    "Accents": n.Sequence([n.NFD(), n.Lowercase(), n.StripAccents(), n.Strip()]),
    "Albert": n.Sequence([n.Replace("``", '"'), n.NFKD(), n.StripAccents(), n.Lowercase(), n.Prepend(" ")]),
}
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
PRE = {
    "none": None, "Bert": p.BertPreTokenizer(), "ByteLevel": p.ByteLevel(add_prefix_space=False),
    "ByteLevelPrefix": p.ByteLevel(), "ByteLevelBare": p.ByteLevel(add_prefix_space=False, use_regex=False),
    "CharDelimiterSplit": p.CharDelimiterSplit("-"), "Digits": p.Digits(),
    "EachDigit": p.Digits(individual_digits=True),
    "FixedLength": p.FixedLength(3), "Metaspace": p.Metaspace(), "MetaspaceNever": p.Metaspace(prepend_scheme="never"),
    "MetaspaceWhole": p.Metaspace(split=False), "MetaspaceOther": p.Metaspace("_"), "Whitespace": p.Whitespace(),
    "WhitespaceSplit": p.WhitespaceSplit(), "UnicodeScripts": p.UnicodeScripts(),
    **{f"Punctuation/{b}": p.Punctuation(b) for b in BEHAVIORS},
    **{f"Split/text/{b}/{i}": p.Split("-", b, i) for b in BEHAVIORS for i in (False, True)},
    **{f"Split/regex/{b}/{i}": p.Split(Regex(r"\d|\s+|a+"), b, i) for b in BEHAVIORS for i in (False, True)},
    **{f"Split/each/{b}": p.Split("", b) for b in BEHAVIORS},
    "Split/eachRegex": p.Split(Regex(""), "isolated"), "Empty": p.Sequence([]),
    "Sequence": p.Sequence([p.WhitespaceSplit(), p.Punctuation(), p.Digits(individual_digits=True)]),
    "Qwen": p.Sequence([p.Split(Regex(QWEN2), "isolated"), p.ByteLevel(add_prefix_space=False, use_regex=False)]),
    "WhitespaceBytes": p.Sequence([p.Whitespace(), p.ByteLevel()]),
    "BytesDigits": p.Sequence([p.ByteLevel(), p.Split(Regex(r"\p{N}"), "isolated")]),
    "BytesTwice": p.Sequence([p.ByteLevel(), p.ByteLevel()]),
    "MetaspaceBytes": p.Sequence([p.Metaspace(), p.ByteLevel(add_prefix_space=False)]),
    "BytesMetaspace": p.Sequence([p.ByteLevel(), p.Metaspace()]),
    "MetaspaceTwice": p.Sequence([p.Metaspace("_"), p.Metaspace()]),
    "Bound": p.Sequence([p.Split(Regex(QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}+|")), "isolated"),
                         p.ByteLevel(False, True)]),
    "Text": p.Sequence([p.Split(" ", "merged_with_next"), p.ByteLevel(False, False)]),
    "Gaps": p.Sequence([p.Split(Regex(r"\p{N}"), "removed", True), p.ByteLevel(False, False)]),
}


def trained():
    """Return small models: BPE over bytes and characters, WordPiece, WordLevel and Unigram."""
    texts = PARTS * 2 + HOSTILE * 2 + [" ".join(PARTS)]
    alphabet = p.ByteLevel.alphabet()
    made = {}

    def keep(name, t):
        made[name] = json.loads(t.to_str())["model"]

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = p.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False))
    keep("bytes", t)
    made["bytesUnk"] = made["bytes"] | {"unk_token": "!", "fuse_unk": True, "byte_fallback": True,
                                        "ignore_merges": True}
    made["bytesBehind"] = made["bytes"] | {"merges": made["bytes"]["merges"][::-1]}
    t = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
    t.pre_tokenizer = p.Metaspace()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=220, limit_alphabet=90, special_tokens=["[UNK]"],
                                                     show_progress=False))
    keep("chars", t)
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.pre_tokenizer = p.BertPreTokenizer()
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=260, special_tokens=["[UNK]"],
                                                           show_progress=False))
    keep("WordPiece", t)
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.pre_tokenizer = p.Whitespace()
    t.train_from_iterator(texts + [" ".join(x) for x in HOSTILE], trainers.WordLevelTrainer(
        vocab_size=300, special_tokens=["[UNK]"], show_progress=False))
    keep("WordLevel", t)
    more = ["a ", " a", "fox", "Ġquick", "Ġa", "▁a", "--", "-b", "b-", "The quick  brown fox's 123 45.6!", "123",
            "The", "bro"]
    for word in more:
        made["WordLevel"]["vocab"].setdefault(word, len(made["WordLevel"]["vocab"]))
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = p.Metaspace()
    t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=220, special_tokens=["<unk>"], unk_token="<unk>",
                                                         show_progress=False))
    keep("Unigram", t)
    return made


def fold(lists):
    """Return a digest of ids, each list behind its length: FNV-1a of 64 bits over numbers."""
    h = 0xCBF29CE484222325
    for ids in lists:
        for x in [len(ids), *ids]:
            h = (h ^ x) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def file(model, **parts):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None} | parts | {"model": model}


def part(x):
    return None if x is None else json.loads(x.__getstate__())


def rows(made, is_all):
    bytes_last = p.ByteLevel(add_prefix_space=False)
    for name, norm in NORMALIZERS.items():
        for pre in PRE if is_all else ["ByteLevel", "Whitespace"]:
            for model in made if is_all else ["bytes" if pre == "ByteLevel" else "WordLevel"]:
                yield model, {"normalizer": part(norm), "pre_tokenizer": part(PRE[pre])}
    if is_all:
        return
    for pre in PRE.values():
        for model in ["WordLevel", "chars"]:
            yield model, {"pre_tokenizer": part(pre)}
    for model in made:
        for pre in ["ByteLevel", "WhitespaceBytes", "BytesDigits", "Metaspace", "none"]:
            yield model, {"pre_tokenizer": part(PRE[pre])}
    for pre in ["BytesTwice", "MetaspaceBytes", "Qwen", "Bound", "Text", "Gaps", "BytesMetaspace"]:
        yield "bytes", {"pre_tokenizer": part(PRE[pre])}
    ends = [("<s>", len(made["bytes"]["vocab"])), ("</s>", len(made["bytes"]["vocab"]) + 1)]
    added = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for c, i in ends]
    template = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=ends)
    for post in [processors.BertProcessing(ends[1], ends[0]), processors.RobertaProcessing(ends[1], ends[0]),
                 processors.ByteLevel(), template, processors.Sequence([processors.ByteLevel(), template])]:
        yield "bytes", {"pre_tokenizer": part(bytes_last), "post_processor": part(post), "added_tokens": added}
    for dec in [decoders.BPEDecoder(), decoders.ByteFallback(), decoders.ByteLevel(), decoders.CTC(), decoders.Fuse(),
                decoders.Metaspace(), decoders.Replace(" ", "a"), decoders.Strip(" ", 1, 1), decoders.WordPiece(),
                decoders.Sequence([decoders.Fuse()])]:
        yield "bytes", {"pre_tokenizer": part(bytes_last), "decoder": part(dec)}
    t = Tokenizer.from_str(json.dumps(file(made["bytes"])))
    t.enable_truncation(5)
    t.enable_padding(length=7)
    saved = json.loads(t.to_str())
    yield "bytes", {"pre_tokenizer": part(bytes_last), "truncation": saved["truncation"]}
    yield "bytes", {"pre_tokenizer": part(bytes_last), "padding": saved["padding"]}


def more_texts(count):
    rng = random.Random(11)
    letters = [chr(c) for c in range(0x20, 0x3000)] + [chr(rng.randrange(0x3000, 0xD800)) for _ in range(3000)] + [
        chr(rng.randrange(0xE000, 0x30000)) for _ in range(6000)]
    words = [w for x in HOSTILE + PARTS for w in x.split(" ")]
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 9)):
            kind = rng.randrange(5)
            out.append(rng.choice(words) if kind < 3 else rng.choice(PARTS) if kind == 3 else
                       "".join(rng.choice(letters) for _ in range(rng.randrange(1, 12))))
        yield rng.choice(["", " ", "  ", "-"]).join(out)


def write(folder, count, is_all=False):
    made = trained()
    texts = HOSTILE + list(more_texts(count))
    out = []
    for model, parts in rows(made, is_all):
        content = file(made[model], **parts)
        try:
            t = Tokenizer.from_str(json.dumps(content))
        except Exception as e:  # the library itself refuses the combination
            print("refused", model, parts, e)
            continue
        t.encode_special_tokens = True
        t.no_truncation()
        t.no_padding()
        row = {"Model": model, "Parts": parts}
        lists = [x.ids for x in t.encode_batch(texts, add_special_tokens=False)]
        out.append(row | ({"Sum": fold(lists)} if count else {"IDs": lists}))
    content = {"Models": made, "Texts": texts, "Rows": out}
    lines = ",\n".join(json.dumps(r, separators=(",", ":"), ensure_ascii=True) for r in out)
    text = json.dumps({k: v for k, v in content.items() if k != "Rows"}, separators=(",", ":"))
    (folder / "table.json").write_text(text[:-1] + ',"Rows":[\n' + lines + "\n]}\n")
    print(len(out), "rows", len(texts), "texts")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(pathlib.Path(sys.argv[1]), int(sys.argv[2]), "all" in sys.argv[3:])
    else:
        write(pathlib.Path(__file__).parent, 0)

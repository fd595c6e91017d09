"""Writes properties.bin: the characters of each Unicode property that expressions may name.

They come from the engine of tokenizers 0.23.3 (Oniguruma). The engine of tiktoken 0.14.0 (fancy-regex) must have the
same ones, or this script fails. To run it again: pip install tokenizers==0.23.3 tiktoken==0.14.0; python make.py.
"""

import pathlib

import tiktoken
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
SCRIPTS = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki
Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian
Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan
Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi
Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi
Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki
Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean
Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian
Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki
Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur
Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan
Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Syloti_Nagri Syriac
Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto
Ugaritic Vai Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()
OTHERS = ["Alphabetic", "White_Space"]

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))


def oniguruma(expression):
    pieces = Split(Regex(expression), "removed", invert=True).pre_tokenize_str(TEXT)
    return {ord(c) for piece, _ in pieces for c in piece}


def rust(expression):
    single = {bytes([b]): b for b in range(256)}
    encoding = tiktoken.Encoding("x", pat_str=expression, mergeable_ranks=single, special_tokens={})
    return set(map(ord, bytes(encoding.encode_ordinary(TEXT)).decode()))


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def runs(points):
    """The first character of each run less the end of the one before, then its length."""
    out, end, points = [], 0, sorted(points)
    i = 0
    while i < len(points):
        j = i
        while j + 1 < len(points) and points[j + 1] == points[j] + 1:
            j += 1
        out.append(varint(points[i] - end) + varint(j - i + 1))
        end = points[j] + 1
        i = j + 1
    return varint(len(out)) + b"".join(out)


def main():
    content = bytearray()
    for name in CATEGORIES + SCRIPTS + OTHERS:
        points = oniguruma(rf"\p{{{name}}}+")
        assert points == rust(rf"\p{{{name}}}+"), name
        content += varint(len(name)) + name.encode() + runs(points)
    pathlib.Path(__file__).parent.parent.joinpath("properties.bin").write_bytes(content)
    print(len(content))


main()

"""Writes the CSV files of the tests with Python 3.11's csv module, and as JSON what that module reads from them."""

import csv
import json
import os

os.chdir(os.path.dirname(os.path.abspath(__file__)))
ODD = ["", "plain", "a, b", 'say "hi"', "two\nlines", "crlf\r\ninside", " space ", "tab\there", "ünï 😀", '"', '""',
       ";x;", "'", "0012", "nul\\N", "a\u2028b", "end\n"]
rows = [{"text": ODD[i % len(ODD)] + ("x" * (i % 50)), "n": str(i), "note": ODD[(i * 7) % len(ODD)]} for i in range(200)]
for name, options in {"rfc.csv": {}, "lf.csv": {"lineterminator": "\n"}, "all.csv": {"quoting": csv.QUOTE_ALL},
                      "rows.tsv": {"delimiter": "\t"}, "semi.csv": {"delimiter": ";", "lineterminator": "\n"}}.items():
    with open(name, "w", newline="", encoding="utf-8-sig" if name == "all.csv" else "utf-8") as f:
        w = csv.DictWriter(f, ["text", "n", "note"], **options)
        w.writeheader()
        w.writerows(rows)
with open("loose.csv", "w", newline="") as f:
    f.write('text,n,note\r\n\r\n5" pipe,1,a"b\r"x"y,2,""\n\n"a""b"c"d,3,z')
with open("loose.csv", newline="") as f:
    loose = list(csv.DictReader(f))
with open("rfc.csv", newline="", encoding="utf-8") as f:
    assert list(csv.DictReader(f)) == rows
with open("rows.json", "w") as f:
    json.dump({"rows": rows, "loose": loose}, f, ensure_ascii=False, indent=0)

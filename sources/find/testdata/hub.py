"""Writes hub.json: directories of data sets, and the files of each configuration and split that Hugging Face
`datasets` reads of them. Run it with datasets 5.2.0: python hub.py > hub.json"""
import json, os, random, tempfile

from datasets import load_dataset_builder

CARDS = {
    "string": "configs:\n- config_name: default\n  data_files: \"*.jsonl\"\n",
    "list": "configs:\n- config_name: default\n  data_files:\n  - a.jsonl\n  - sub/*.jsonl\n",
    "splits": "configs:\n- config_name: main\n  data_files:\n  - split: train\n    path: \"sub/*\"\n"
              "  - split: held\n    path:\n    - a.jsonl\n    - b*.jsonl\n",
    "two": "license: mit\nconfigs:\n- config_name: en\n  data_files: a.jsonl\n- config_name: de\n"
           "  data_files: sub/c.jsonl\n",
    "default by key": "configs:\n- config_name: en\n  data_files: a.jsonl\n- config_name: de\n  default: true\n"
                      "  data_files: sub/c.jsonl\n",
    "default by name": "configs:\n- config_name: en\n  data_files: a.jsonl\n- config_name: default\n"
                       "  data_files: sub/c.jsonl\n",
    "data_dir": "configs:\n- config_name: en\n  data_dir: sub\n- config_name: de\n  data_dir: other\n  data_files:\n"
                "  - split: train\n    path: x*\n",
    "data_dir of names": "configs:\n- config_name: en\n  data_dir: named\n",
    "double star": "configs:\n- config_name: all\n  data_files: \"**/*.jsonl\"\n",
    "overlap": "configs:\n- config_name: all\n  data_files:\n  - split: train\n    path: \"**/*.jsonl\"\n"
               "  - split: test\n    path: a.jsonl\n",
    "class": "configs:\n- config_name: all\n  data_files: \"[ab].jsonl\"\n",
    "question": "configs:\n- config_name: all\n  data_files: \"?.jsonl\"\n",
    "braces": "configs:\n- config_name: all\n  data_files: \"{a}.jsonl\"\n",
}
FILES = ["a.jsonl", "b.jsonl", "b2.jsonl", "{a}.jsonl", "sub/c.jsonl", "sub/d.jsonl", "other/x1.jsonl", "other/y.jsonl",
         "named/train.jsonl", "named/test.jsonl"]
LAYOUTS = [
    ["a.jsonl", "b/c.jsonl"],
    ["train.jsonl", "test.jsonl"],
    ["data/train.jsonl", "data/dev.jsonl", "data/eval-2.jsonl"],
    ["train_0.jsonl", "train_1.jsonl", "test_0.jsonl"],
    ["data/train/s0.jsonl", "data/train/s1.jsonl", "data/test/s0.jsonl"],
    ["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/random-00000-of-00001.jsonl"],
    ["data/test-00000-of-00001-abcdef.jsonl", "data/train-00000-of-00001-012.jsonl", "other.jsonl"],
    ["my-train-file.jsonl", "my_validation_file.jsonl"],
    ["x/my-train/a.jsonl", "x/validation.2/b.jsonl", "test.jsonl"],
    ["training/a.jsonl", "evaluation/b.jsonl", "valid/c.jsonl"],
    ["trainer.jsonl", "testament.jsonl"],
    ["Train.jsonl", "TEST.jsonl"],
    ["train/test.jsonl", "test/train.jsonl"],
    ["train-test.jsonl", "other.train.jsonl"],
    [".hidden/train.jsonl", "test.jsonl", "train.jsonl"],
    ["__x__/train.jsonl", "test.jsonl"],
]


def built(files, card=""):
    with tempfile.TemporaryDirectory() as d:
        for name in files:
            os.makedirs(os.path.dirname(os.path.join(d, name)) or d, exist_ok=True)
            with open(os.path.join(d, name), "w") as f:
                f.write('{"text": "%s"}\n' % name)
        if card:
            with open(os.path.join(d, "README.md"), "w") as f:
                f.write(f"---\n{card}---\n# A data set\n")
        found = {}
        try:
            first = load_dataset_builder(d, cache_dir=d + "/.cache")
            names, chosen = list(first.builder_configs), first.config.name
        except ValueError as err:  # no default configuration
            assert "Config name is missing" in str(err), err
            chosen = None
            names = [line.split(":")[0] for line in card.split("config_name: ")[1:]]
            names = [n.split("\n")[0] for n in names]
        if not card:
            names = [chosen]
        for name in names:
            b = load_dataset_builder(d, name if card else None, cache_dir=d + "/.cache")
            found[name if card else ""] = {
                str(split): sorted({os.path.relpath(p, os.path.realpath(d)) for p in paths})
                for split, paths in b.config.data_files.items()}
        return {"files": sorted(files), "card": card, "chosen": chosen if card else "", "configs": found}


def drawn(r):
    words = ["train", "training", "valid", "val", "dev", "test", "eval", "part", "x", "text", "validation"]
    apart = ["-", ".", "_", " ", "0", "7", "", "s"]
    part = lambda: "".join(r.choice(words) + r.choice(apart) for _ in range(r.randint(1, 2)))
    files = set()
    for _ in range(r.randint(2, 5)):
        files.add("/".join([part() for _ in range(r.randint(0, 2))] + [part() + ".jsonl"]))
    return sorted(files)


def main():
    r = random.Random(7)
    cases = [built(FILES, card) for card in CARDS.values()] + [built(files) for files in LAYOUTS]
    while len(cases) < 150:
        files = drawn(r)
        if any(a != b and b.startswith(a + "/") for a in files for b in files):
            continue
        cases.append(built(files))
    print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")


main()

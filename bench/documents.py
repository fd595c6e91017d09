"""Real documents of this machine, chosen with a fixed seed: the text of the benchmarks."""

from __future__ import annotations

import gettext
import gzip
import os
import pathlib
import random
import subprocess

# Sources of documents: label, folder (from the environment if it begins with $), endings and share of the corpus.
# Missing folders are left out.
PLACES = [
    ("Go source", "$GOROOT/src", (".go",), 1),
    ("Go pages and texts", "$GOROOT", (".md", ".html", ".txt"), 1),
    ("Python source", "$STDLIB", (".py",), 1),
    ("documentation", "/usr/share/doc", (".txt", ".md", ".html", ".gz", ""), 1),
    ("manual pages, English", "/usr/share/man/man1", (".gz",), 1),
    ("manual pages, English", "/usr/share/man/man8", (".gz",), 1),
    ("manual pages, other languages", "/usr/share/man", (".gz",), 1),
    ("translations, other scripts", "/usr/share/locale", (".mo",), 2),
    ("Perl", "/usr/share/perl", (".pm", ".pod", ".pl"), 1),
    ("C headers", "/usr/include", (".h",), 1),
]
LONGEST = 500_000  # bytes of one document


def place(folder: str) -> pathlib.Path:
    if "$GOROOT" in folder:
        goroot = subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=True)
        return pathlib.Path(folder.replace("$GOROOT", goroot.stdout.strip()))
    return pathlib.Path(folder.replace("$STDLIB", os.path.dirname(os.__file__)))


def document(path: pathlib.Path) -> str | None:
    """Returns the text of a file, or None if it is not text, too short or too long."""
    try:
        raw = path.read_bytes()
        if path.suffix == ".mo":
            return catalog(path)
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, ValueError, EOFError):
        return None
    return text if 64 <= len(text) <= LONGEST else None


def other_scripts(text: str) -> int:
    """Returns the bytes of a text that are neither Latin letters nor ASCII."""
    return sum(len(c.encode()) for c in text if c > "\u036f")


def catalog(path: pathlib.Path) -> str | None:
    """Returns the translations of a message catalog, or None if they are Latin or few."""
    with path.open("rb") as file:
        messages = gettext.GNUTranslations(file)._catalog
    text = "\n".join(v for k, v in messages.items() if k and isinstance(v, str))
    return text if 64 <= len(text) <= LONGEST and other_scripts(text) > len(text) // 3 else None


def corpus(size: int) -> tuple[list[str], dict[str, int]]:
    """Returns about `size` bytes of shuffled documents, the same share from each place, and the bytes of each label."""
    documents: list[str] = []
    labels: dict[str, int] = {}
    shuffle = random.Random(20)
    for label, folder, endings, share in PLACES:
        paths = sorted(p for p in place(folder).rglob("*") if p.suffix in endings and p.is_file())
        if label.endswith("other languages"):
            paths = [p for p in paths if p.parent.parent.name != "man"]
        shuffle.shuffle(paths)
        left = size * share // sum(share for *_, share in PLACES)
        for path in paths:
            if left <= 0:
                break
            if (text := document(path)) is not None:
                documents.append(text)
                n = len(text.encode())
                left -= n
                labels[label] = labels.get(label, 0) + n
    shuffle.shuffle(documents)
    return documents, labels

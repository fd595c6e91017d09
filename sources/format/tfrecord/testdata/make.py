"""Writes the files of this directory with the writer of the package tfrecord 1.14.6."""

import gzip
import os
import zlib

from tfrecord.writer import TFRecordWriter

here = os.path.dirname(os.path.abspath(__file__))


def path(name):
    return os.path.join(here, name)


w = TFRecordWriter(path("plain.tfrecord"))
for i in range(20):
    w.write({
        "text": (("record %d %s" % (i, "wörd " * (i % 7))).encode(), "byte"),
        "label": (i, "int"),
        "quality": (i / 4, "float"),
        "ids": (list(range(i)), "int"),
    })
w.write({"label": (99, "int")})
w.close()

plain = open(path("plain.tfrecord"), "rb").read()
# Two members, and a name that does not tell.
with open(path("packed.tfrecord"), "wb") as f:
    f.write(gzip.compress(plain[:700], mtime=0) + gzip.compress(plain[700:], mtime=0))
with open(path("zlib.tfrecord"), "wb") as f:
    f.write(zlib.compress(plain))

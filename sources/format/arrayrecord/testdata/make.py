"""Writes the files of this directory with array_record 0.8.6."""

import os

from array_record.python.array_record_module import ArrayRecordWriter

here = os.path.dirname(os.path.abspath(__file__))


def texts(n):
    return [("record %d %s" % (i, "wörd " * (i * 7 % 40))).encode() for i in range(n)]


def write(name, options, records):
    w = ArrayRecordWriter(os.path.join(here, name), options)
    for r in records:
        w.write(r)
    w.close()


write("default.array_record", "", texts(30))
write("plain.array_record", "group_size:4,uncompressed", texts(30))
write("brotli.array_record", "group_size:7,brotli:6", texts(30))
write("zstd.array_record", "group_size:16,zstd:3", texts(30))
write("snappy.array_record", "group_size:5,snappy", texts(30))
write("padded.array_record", "group_size:1,pad_to_block_boundary:true", texts(3))
write("transposed.array_record", "group_size:8,transpose:true", texts(30))
write("empty.array_record", "", [])
write("odd.array_record", "group_size:3", [b"", b"x", b"", b"\xff\xfe", b"last"])
# One record reaches over several blocks.
write("long.array_record", "group_size:2,uncompressed", [b"a", b"b" * 200_000, b"c"])

# Most bytes are zeros between the records and the last block.
import gzip  # noqa: E402

for name in sorted(os.listdir(here)):
    if name.endswith(".array_record"):
        with open(os.path.join(here, name), "rb") as f, open(os.path.join(here, name + ".gz"), "wb") as g:
            g.write(gzip.compress(f.read(), 9, mtime=0))
        os.remove(os.path.join(here, name))

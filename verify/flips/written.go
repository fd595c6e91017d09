package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// jsonLines returns n objects, a line each.
func jsonLines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		text := strings.Repeat("wörld ", i%7)
		fmt.Fprintf(&b, `{"text": "row %d %s", "n": %d, "meta": {"lang": "en"}}`+"\n", i, text, i)
	}
	return b.Bytes()
}

// jsonArray returns one array of the objects.
func jsonArray(lines []byte) []byte {
	inside := bytes.ReplaceAll(bytes.TrimSpace(lines), []byte("\n"), []byte(",\n "))
	return append(append([]byte("["), inside...), "]\n"...)
}

// gzipped packs b into one member.
func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// blockGzipped packs b into members that have their sizes in their heads, as bgzip does, with the empty one at the end.
func blockGzipped(b []byte) []byte {
	var out []byte
	for part := b; ; part = part[min(700, len(part)):] {
		var one bytes.Buffer
		w := gzip.NewWriter(&one)
		w.Extra = []byte{'B', 'C', 2, 0, 0, 0}
		w.Write(part[:min(700, len(part))])
		w.Close()
		member := one.Bytes()
		binary.LittleEndian.PutUint16(member[16:], uint16(len(member)-1))
		out = append(out, member...)
		if len(part) == 0 {
			return out
		}
	}
}

// zstded packs b into one frame with a checksum.
func zstded(b []byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
	if err != nil {
		panic(err) // the options are constant
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// zstdFrames packs b into several frames.
func zstdFrames(b []byte) (out []byte) {
	for len(b) > 0 {
		n := min(700, len(b))
		out = append(out, zstded(b[:n])...)
		b = b[n:]
	}
	return out
}

// megatronSet returns the files of 20 documents of one or two sequences of 16-bit ids, as Megatron-LM's IndexedDataset
// lays them out.
func megatronSet() (idx, bin []byte) {
	le := binary.LittleEndian
	var lengths, pointers, bounds []byte
	sequences := 0
	bounds = le.AppendUint64(bounds, 0)
	for doc := range 20 {
		for range 1 + doc%2 {
			lengths = le.AppendUint32(lengths, uint32(doc%5))
			pointers = le.AppendUint64(pointers, uint64(len(bin)))
			for k := range doc % 5 {
				bin = le.AppendUint16(bin, uint16(doc*100+k))
			}
			sequences++
		}
		bounds = le.AppendUint64(bounds, uint64(sequences))
	}
	idx = append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, 8)
	idx = le.AppendUint64(idx, uint64(sequences))
	idx = le.AppendUint64(idx, uint64(len(bounds)/8))
	return append(append(append(idx, lengths...), pointers...), bounds...), bin
}

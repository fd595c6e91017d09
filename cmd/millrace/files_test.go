package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/rogpeppe/go-internal/testscript"
)

// text is the n-th document of a test file, of about 5 to 60 words.
func text(n int) string {
	var b strings.Builder
	for i := range 5 + n*37%56 {
		fmt.Fprintf(&b, "word%d ", (n*31+i*7)%500)
	}
	return b.String()
}

// docs FILE N [FIELD] writes N documents as JSON lines.
func docs(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	field := "text"
	if len(args) > 2 {
		field = args[2]
	}
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{%q: %q, \"n\": %d}\n", field, text(i), i)
	}
	write(ts, args[0], b.Bytes())
}

// pack FILE packs a file into FILE.gz and FILE.zst, each as one stream.
func pack(ts *testscript.TestScript, neg bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	var z bytes.Buffer
	gz := gzip.NewWriter(&z)
	_, err := gz.Write(b)
	ts.Check(err)
	ts.Check(gz.Close())
	write(ts, args[0]+".gz", z.Bytes())
	z.Reset()
	zs, err := zstd.NewWriter(&z, zstd.WithEncoderConcurrency(1))
	ts.Check(err)
	_, err = zs.Write(b)
	ts.Check(err)
	ts.Check(zs.Close())
	write(ts, args[0]+".zst", z.Bytes())
	ts.Check(os.Remove(ts.MkAbs(args[0])))
}

type tableRow struct {
	Body string `parquet:"body,snappy"`
	N    int64  `parquet:"n"`
}

// table FILE N writes a Parquet file of N rows with the columns body and n.
func parquetFile(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	var b bytes.Buffer
	w := parquet.NewGenericWriter[tableRow](&b, parquet.PageBufferSize(4<<10))
	for i := range n {
		_, err := w.Write([]tableRow{{text(i), int64(i)}})
		ts.Check(err)
	}
	ts.Check(w.Close())
	write(ts, args[0], b.Bytes())
}

// tokens PREFIX N writes a Megatron dataset of N documents of 1 to 100 tokens.
func megatronFiles(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	var bin, lengths, pointers, ends []byte
	le := binary.LittleEndian
	ends = le.AppendUint64(ends, 0)
	for i := range n {
		size := 1 + i*13%100
		pointers = le.AppendUint64(pointers, uint64(len(bin)))
		lengths = le.AppendUint32(lengths, uint32(size))
		ends = le.AppendUint64(ends, uint64(i+1))
		for k := range size {
			bin = le.AppendUint16(bin, uint16(i*100+k))
		}
	}
	idx := le.AppendUint64([]byte("MMIDIDX\x00\x00"), 1)
	idx = append(idx, 8) // uint16
	idx = le.AppendUint64(idx, uint64(n))
	idx = le.AppendUint64(idx, uint64(n+1))
	idx = append(append(append(idx, lengths...), pointers...), ends...)
	write(ts, args[0]+".bin", bin)
	write(ts, args[0]+".idx", idx)
}

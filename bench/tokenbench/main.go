// Command tokenbench measures the tokenizer on one core. bench/tokenizer.py runs it beside pip's tiktoken.
//
// It reads paths from standard input, one on a line, and encodes each file as one document into the same slice. A new
// encoder encodes every second document (cold), then the others (fresh text on a filled cache), then all documents
// again (warm). It prints one JSON object. Bytes a second are those of the documents of the pass. The
// digest is SHA-256 over the ids of all documents, as four little-endian bytes each. With -export NAME, it prints the
// ranks of that encoding as a .tiktoken file instead.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"millrace/text/tokenize"
)

// result has the figures of one run. Seconds are CPU time, except those with Wall in their name.
type result struct {
	Encoding     string  `json:"encoding"`
	Documents    int     `json:"documents"`
	Bytes        int     `json:"bytes"`
	Tokens       int     `json:"tokens"`
	LoadSeconds  float64 `json:"load_wall_seconds"`
	ColdBytes    int     `json:"cold_bytes"`
	ColdSeconds  float64 `json:"cold_cpu_seconds"`
	FreshSeconds float64 `json:"fresh_cpu_seconds"`
	WarmSeconds  float64 `json:"warm_cpu_seconds"`
	Digest       string  `json:"digest"`
}

func main() {
	name := flag.String("encoding", "gpt2", "the encoding to measure")
	pattern := flag.String("pattern", "", "the pattern to divide text by, in place of the encoding's own")
	exported := flag.String("export", "", "print the ranks of this encoding and measure nothing")
	mebibytes := flag.Int64("encoder-mib", 32, "the memory that the encoder may take, in MiB")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	spec := tokenize.Spec{Name: *name, Pattern: *pattern}
	act := func() error { return measure(spec, *mebibytes<<20, os.Stdin, os.Stdout) }
	if *exported != "" {
		act = func() error { return export(*exported, os.Stdout) }
	}
	if err := act(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// export writes the ranks of an encoding: its tokens with ids below the end of text.
func export(name string, out io.Writer) error {
	encoding, err := tokenize.Load(name)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(out)
	end, _ := encoding.EOS()
	for id := range end {
		if token, err := encoding.Decode(nil, []uint32{id}); err == nil {
			fmt.Fprintf(buffered, "%s %d\n", base64.StdEncoding.EncodeToString(token), id)
		}
	}
	return buffered.Flush()
}

func measure(spec tokenize.Spec, memory int64, list io.Reader, out io.Writer) error {
	measured, err := run(spec, memory, list)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(measured)
}

func run(spec tokenize.Spec, memory int64, list io.Reader) (*result, error) {
	documents, size, err := read(list)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	encoding, err := tokenize.Open(spec)
	if err != nil {
		return nil, err
	}
	loaded := time.Since(start).Seconds()
	r := &result{Encoding: encoding.Name(), Documents: len(documents), Bytes: size, LoadSeconds: loaded}
	encoding.LimitEncoders(1, memory)
	encoder := encoding.NewEncoder()
	ids := make([]uint32, 0, longest(documents))
	pass := func(documents [][]byte) (seconds float64, err error) {
		before, err := cpuSeconds()
		if err != nil {
			return 0, err
		}
		for _, document := range documents {
			ids = encoder.Append(ids[:0], document)
		}
		after, err := cpuSeconds()
		return after - before, err
	}
	runtime.GC()
	var halves [2][][]byte
	for i, document := range documents {
		halves[i%2] = append(halves[i%2], document)
		r.ColdBytes += len(document) * (1 - i%2)
	}
	if r.ColdSeconds, err = pass(halves[0]); err != nil {
		return nil, err
	}
	if r.FreshSeconds, err = pass(halves[1]); err != nil {
		return nil, err
	}
	if r.WarmSeconds, err = pass(documents); err != nil {
		return nil, err
	}
	hash := sha256.New()
	var buf []byte
	for _, document := range documents {
		ids, buf = encoder.Append(ids[:0], document), buf[:0]
		for _, id := range ids {
			buf = binary.LittleEndian.AppendUint32(buf, id)
		}
		hash.Write(buf)
		r.Tokens += len(ids)
	}
	r.Digest = hex.EncodeToString(hash.Sum(nil))
	return r, nil
}

func longest(documents [][]byte) (size int) {
	for _, document := range documents {
		size = max(size, len(document))
	}
	return size
}

func read(list io.Reader) (documents [][]byte, size int, err error) {
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		document, err := os.ReadFile(lines.Text())
		if err != nil {
			return nil, 0, fmt.Errorf("read document: %w", err)
		}
		documents = append(documents, document)
		size += len(document)
	}
	if err := lines.Err(); err != nil {
		return nil, 0, fmt.Errorf("read the list of documents: %w", err)
	}
	return documents, size, nil
}

func cpuSeconds() (float64, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9, nil
}

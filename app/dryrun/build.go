package dryrun

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/blake2b"

	"millrace"
	"millrace/constructors"
	"millrace/sources/read/feed"
)

// Batch is one microbatch as a rank receives it.
type Batch struct {
	Segments []millrace.Assignment
	Tokens   [][]uint32 // of each segment, one more if its document continues
	Fields   []string   // of each segment: passed-through fields, a JSON object; empty: it has none
	Tensors  []constructors.Tensor
	Digest   string // as batch.digest of the trainer's side
	frame    []byte
}

// Build fetches the samples of one microbatch of the newest step and builds the batch of one rank.
func (w *Walk) Build(ctx context.Context, r millrace.Rank, microbatch uint32) (*Batch, error) {
	at := w.topology.Coordinates(r)
	part := w.last.Plan.Part(millrace.Rank(at.DP), microbatch)
	tokens, fields, err := w.fetch(ctx, part)
	if err != nil {
		return nil, err
	}
	collator, err := w.shapes.Of(w.last.Plan)
	if err != nil {
		return nil, err
	}
	in := constructors.Content{Part: part, Tokens: constructors.AllWide(tokens), Fields: fields}
	if in, err = in.Apart(); err != nil {
		return nil, err
	}
	b := &Batch{Segments: in.Part, Fields: in.Fields}
	for _, t := range in.Tokens {
		b.Tokens = append(b.Tokens, t.IDs())
	}
	var size int64
	collator = collator.For(uint32(at.CP))
	b.Tensors, size = collator.Layout(in.Part)
	b.frame = make([]byte, size)
	if err := collator.Build(b.frame, b.Tensors, in.Part, in.Tokens, nil); err != nil {
		return nil, fmt.Errorf("step %d, rank %d, microbatch %d: %w", w.last.Step, r, microbatch, err)
	}
	b.Digest, err = b.digest()
	return b, err
}

// fetch returns the tokens and the fields of a part's segments in order.
func (w *Walk) fetch(ctx context.Context, part []millrace.Assignment) (
	out [][]uint32, fields []string, bad error,
) {
	out, fields = make([][]uint32, len(part)), make([]string, len(part))
	for source, f := range w.feeds {
		var asked []int
		var reqs []feed.Request
		for i := range part {
			if a := &part[i]; int(a.Source) == source {
				asked = append(asked, i)
				reqs = append(reqs, feed.Request{Ordinal: a.Ordinal, Offset: a.Offset, Length: a.Length})
			}
		}
		if len(reqs) == 0 {
			continue
		}
		err := f.Fetch(ctx, reqs, func(i int, tokens []uint32, passed string) error {
			out[asked[i]], fields[asked[i]] = slices.Clone(tokens), passed
			return nil
		})
		if err != nil && len(Faults(err)) == 0 {
			return nil, nil, err
		}
		bad = errors.Join(bad, err)
	}
	return out, fields, bad
}

// digest hashes the tensors sorted by name, each as name, NUL, dtype, NUL, shape, NUL, bytes.
func (b *Batch) digest() (string, error) {
	h, err := blake2b.New(len(millrace.Digest{}), nil)
	if err != nil {
		return "", fmt.Errorf("digest microbatch: %w", err)
	}
	ts := slices.SortedFunc(
		slices.Values(b.Tensors), func(x, y constructors.Tensor) int { return strings.Compare(x.Name, y.Name) },
	)
	for _, t := range ts {
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(t.Shape), "[]"), " ", ",")
		fmt.Fprintf(h, "%s\x00%s\x00%s\x00", t.Name, t.Dtype, shape)
		h.Write(b.frame[t.Offset : t.Offset+t.Bytes])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

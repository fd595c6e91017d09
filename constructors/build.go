package constructors

import (
	"fmt"
	"unsafe"

	"millrace"
	"millrace/internal/tokenid"
)

// ignored is the label of a document's last token and of padding. PyTorch's cross entropy ignores it by default.
const ignored = -100

// Collator builds one context-parallel rank's slices of the microbatches of one shape. It is immutable after New and
// safe for concurrent use.
type Collator struct {
	shape millrace.Shape
	pad   uint32 // segments are padded to a multiple of pad, in tokens
	ranks uint32 // context-parallel ranks; this collator is for number rank
	rank  uint32
	bare  bool // it builds only the tensors that need no tokens
	workers
	// Constant rows that are copied into batches: 0, 1, 2 …; -100 …; 1.0 ….
	count64, none64 []int64
	count32, none32 []int32
	ones            []float32
}

// New returns the collator for the first context-parallel rank of shape. padMultiple is the run's pad_multiple, 1 or
// more. With several context-parallel ranks it is a multiple of twice their number.
func New(shape millrace.Shape, padMultiple uint32) *Collator {
	n := int(max(shape.SequenceLength, shape.CapTokens, 1))
	c := bare(shape, padMultiple)
	c.ones = make([]float32, n)
	for i := range c.ones {
		c.ones[i] = 1
	}
	if shape.TokenDtype == millrace.Int32 {
		c.count32, c.none32 = rows[int32](n)
	} else {
		c.count64, c.none64 = rows[int64](n)
	}
	return c
}

// bare returns a collator that only lays out microbatches: it cannot build them.
func bare(shape millrace.Shape, padMultiple uint32) *Collator {
	return &Collator{shape: shape, pad: max(padMultiple, 1), ranks: max(shape.CP, 1), workers: allCores()}
}

// Shape returns the shape of the whole microbatches.
func (c *Collator) Shape() millrace.Shape { return c.shape }

// For returns the collator for another context-parallel rank, from 0.
func (c *Collator) For(rank uint32) *Collator {
	other := *c
	other.rank = rank
	return &other
}

// Bare returns the collator that builds only the tensors that need no tokens: position_ids, with segment_ids or the
// cu_seqlens and max_seqlen. Its Build ignores the tokens.
func (c *Collator) Bare() *Collator {
	other := *c
	other.bare = true
	return &other
}

func rows[T int32 | int64](n int) (count, none []T) {
	count, none = make([]T, n), make([]T, n)
	for i := range count {
		count[i], none[i] = T(i), ignored
	}
	return count, none
}

// Build fills dst with the tensors of the rank's slice of a microbatch. part has the segments of the whole microbatch,
// in (row, start) order. tokens[i] has the tokens of part[i], and one more if the document continues after the segment
// (Segment.More). Build writes every byte of every tensor, so dst may hold an older batch.
//
// masked marks the masked segments; nil: none is masked. A masked segment keeps its place, length, positions and
// number. Its tokens are 0, its labels -100 and its loss mask 0. Build ignores its tokens[i].
func (c *Collator) Build(
	dst []byte, tensors []Tensor, part []millrace.Assignment, tokens []Tokens, masked []bool,
) error {
	if len(part) != len(tokens) || masked != nil && len(part) != len(masked) {
		return fmt.Errorf("build microbatch: %d segments came with tokens of %d segments and masks of %d",
			len(part), len(tokens), len(masked))
	}
	for i := range part {
		if a := &part[i]; a.Holder > c.ranks {
			return millrace.Errorf(millrace.ErrMismatch,
				"build microbatch: segment of source %d, ordinal %d is held by context-parallel rank %d of %d",
				a.Source, a.Ordinal, a.Holder-1, c.ranks)
		}
	}
	in := c.arrange(part, tokens, masked)
	if err := c.check(dst, tensors, in); err != nil {
		return err
	}
	if c.shape.TokenDtype == millrace.Int32 {
		build(c, dst, tensors, in, c.count32, c.none32)
	} else {
		build(c, dst, tensors, in, c.count64, c.none64)
	}
	return nil
}

// check returns an error if a build would write out of bounds, for any plan and any tokens.
func (c *Collator) check(dst []byte, tensors []Tensor, in arranged) error {
	if last := tensors[len(tensors)-1]; int64(len(dst)) < last.Offset+last.Bytes {
		return fmt.Errorf("build microbatch: frame of %d bytes is too small", len(dst))
	}
	rowLimit, colLimit := uint32(1), uint64(in.shared)
	if c.shape.Layout != millrace.Varlen {
		rowLimit, colLimit = c.shape.MicroBatch, uint64(c.shape.SequenceLength)
	}
	var row uint32
	var end uint64
	for i := range in.part {
		a := &in.part[i]
		if a.Row != row || i == in.segments {
			row, end = a.Row, 0
		}
		if i == in.segments {
			colLimit = uint64(in.shared)/uint64(c.ranks) + uint64(in.own)
		}
		room, ok := c.room(a)
		if !ok || a.Row >= rowLimit || uint64(a.Start) < end || uint64(a.Start)+room > colLimit || a.Length == 0 ||
			i > 0 && a.Row < in.part[i-1].Row || uint64(a.Length) > uint64(len(c.ones)) {
			return fmt.Errorf("build microbatch: segment %d (source %d, ordinal %d) does not fit row %d at column %d",
				i, a.Source, a.Ordinal, a.Row, a.Start)
		}
		want := int(a.Length)
		if a.More {
			want++
		}
		if in.tokens[i].Len() != want && !c.bare && (in.masked == nil || !in.masked[i]) {
			return millrace.Errorf(millrace.ErrMismatch,
				"build microbatch: segment of source %d, ordinal %d, offset %d: %d tokens came, %d were planned",
				a.Source, a.Ordinal, a.Offset, in.tokens[i].Len(), want)
		}
		end = uint64(a.Start) + room
	}
	return nil
}

// named returns a tensor of a list, or an empty one.
func named(of []Tensor, name string) Tensor {
	for _, t := range of {
		if t.Name == name {
			return t
		}
	}
	return Tensor{}
}

// view returns a tensor's bytes as a typed slice. Frames are aligned to 64 bytes and the machine is little-endian.
func view[T int32 | int64 | float32](dst []byte, t Tensor) []T {
	if t.Bytes == 0 {
		return nil
	}
	b := dst[t.Offset : t.Offset+t.Bytes]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(*new(T))))
}

// arrays has a microbatch's flat tensors and the constant rows. ids is nil for varlen. Without tokens, labels and mask
// are nil, too.
type arrays[T int32 | int64] struct {
	tokens, labels, positions []T
	ids                       []int32
	mask                      []float32
	count, none               []T
	ones                      []float32
}

func build[T int32 | int64](c *Collator, dst []byte, ts []Tensor, in arranged, count, none []T) {
	a := arrays[T]{
		tokens: view[T](dst, named(ts, "tokens")), labels: view[T](dst, named(ts, "labels")),
		positions: view[T](dst, named(ts, "position_ids")), mask: view[float32](dst, named(ts, "loss_mask")),
		ids: view[int32](dst, named(ts, "segment_ids")), count: count, none: none, ones: c.ones,
	}
	stride := 0
	if c.shape.Layout == millrace.Varlen {
		boundaries(view[int32](dst, named(ts, "cu_seqlens")), view[int32](dst, named(ts, "max_seqlen")),
			in.part[:in.segments], 0, in.shared)
		if c.shape.Local {
			from := in.shared / int(c.ranks)
			boundaries(view[int32](dst, named(ts, "cu_seqlens_local")), view[int32](dst, named(ts, "max_seqlen_local")),
				in.part[in.segments:], from, from+in.own)
		}
	} else {
		stride = int(c.shape.SequenceLength / c.ranks)
	}
	d := drawing[T]{c, in, a, stride}
	d.inParts(c.workers.parts(len(a.positions)))
}

// segment writes a run of a segment's tokens at column `at`. If the document continues after the segment, tokens also
// has the document's next token.
func (a *arrays[T]) segment(at int, r run, tokens Tokens, id int32) {
	n := r.to - r.from
	if n == 0 {
		return
	}
	if a.tokens == nil {
		a.number(at, r, id)
		return
	}
	out := a.tokens[at : at+n]
	untrained := write(out, tokens, r.from)
	labels, mask := a.labels[at:at+n], a.mask[at:at+n]
	copy(labels, out[1:])
	copy(mask, a.ones)
	if r.to < tokens.Len() {
		labels[n-1] = T(tokens.at(r.to))
	} else {
		labels[n-1], mask[n-1] = ignored, 0
	}
	if untrained || r.to < tokens.Len() && tokens.at(r.to)&tokenid.Untrained != 0 {
		a.leaveOut(at, r, tokens)
	}
	a.number(at, r, id)
}

// leaveOut takes the labels of untrained tokens out of a run, and the bit out of its ids.
func (a *arrays[T]) leaveOut(at int, r run, tokens Tokens) {
	for i := r.from; i < r.to; i++ {
		column := at + i - r.from
		a.tokens[column] = T(tokens.wide[i] &^ tokenid.Untrained)
		if i+1 < len(tokens.wide) && tokens.wide[i+1]&tokenid.Untrained != 0 {
			a.labels[column], a.mask[column] = ignored, 0
		}
	}
}

// masked writes a run of a masked segment: padding, with the positions and the number of the segment.
func (a *arrays[T]) masked(at int, r run, id int32) {
	a.padding(at, at+r.to-r.from)
	a.number(at, r, id)
}

// number writes the positions of a run, and the segment's number in its row.
func (a *arrays[T]) number(at int, r run, id int32) {
	n := r.to - r.from
	copy(a.positions[at:at+n], a.count[r.from:])
	if a.ids != nil {
		repeat(a.ids[at:at+n], id)
	}
}

// padding writes the columns that belong to no segment.
func (a *arrays[T]) padding(from, to int) {
	if from >= to {
		return
	}
	clear(a.positions[from:to])
	if a.ids != nil {
		clear(a.ids[from:to])
	}
	if a.tokens == nil {
		return
	}
	clear(a.tokens[from:to])
	clear(a.mask[from:to])
	for labels := a.labels[from:to]; len(labels) > 0; {
		labels = labels[copy(labels, a.none):]
	}
}

// boundaries writes cu_seqlens and max_seqlen. cu_seqlens has the padded start of every segment minus from, then the
// end minus from. max_seqlen is the longest distance between two neighbours.
func boundaries(cu, longest []int32, part []millrace.Assignment, from, end int) {
	cu[0], cu[len(cu)-1], longest[0] = 0, int32(end-from), 0
	for i := range part {
		cu[i] = int32(int(part[i].Start) - from)
	}
	for i := range cu[1:] {
		longest[0] = max(longest[0], cu[i+1]-cu[i])
	}
}

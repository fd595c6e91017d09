package constructors

import "millrace"

// align is the alignment of tensors in a frame, in bytes: a cache line, and enough for any vector load.
const align = 64

// Tensor is one array of a microbatch and its place in the frame.
type Tensor struct {
	Name   string
	Dtype  string // NumPy dtype.str: <i8, <i4, <f4
	Shape  []int
	Offset int64 // bytes from the start of the frame
	Bytes  int64
}

// Layout returns the tensors of the rank's slice of a microbatch, and the size of its frame in bytes.
//
// Packed: tokens, labels, position_ids, segment_ids and loss_mask, each [micro_batch_size, sequence_length / cp] for
// every part.
//
// Varlen: tokens, labels, position_ids and loss_mask, each [n]; cu_seqlens [segments + 1] and max_seqlen []. cu_seqlens
// and max_seqlen describe the whole microbatch, and n is cu_seqlens[-1] / cp.
//
// Varlen with Shape.Local also has cu_seqlens_local [held + 1] and max_seqlen_local [], for the documents that this
// rank holds whole. These documents follow the slices: n is cu_seqlens[-1] / cp + cu_seqlens_local[-1].
//
// A bare collator has no tokens, labels and loss_mask.
func (c *Collator) Layout(part []millrace.Assignment) ([]Tensor, int64) {
	if c.shape.Layout == millrace.Varlen {
		return c.varlen(c.arrange(part, nil, nil).extent)
	}
	rows, cols := int(c.shape.MicroBatch), int(c.shape.SequenceLength/c.ranks)
	var b frame
	b.addTokens(c, rows, cols)
	b.add("segment_ids", "<i4", rows, cols)
	b.addMask(c, rows, cols)
	return b.tensors, b.size
}

// MaxBytes returns the size of the largest frame that any part of this shape needs, in bytes.
func (c *Collator) MaxBytes() int64 {
	if c.shape.Layout == millrace.Varlen {
		all := int(c.shape.CapTokens)
		e := extent{segments: all, shared: max(all, c.least())}
		if c.shape.Local { // in the worst case one rank holds all documents
			e.held, e.own = all, all
		}
		_, size := c.varlen(e)
		return size
	}
	_, size := c.Layout(nil)
	return size
}

func (c *Collator) varlen(e extent) ([]Tensor, int64) {
	var b frame
	tokens := e.shared/int(c.ranks) + e.own
	b.addTokens(c, tokens)
	b.addMask(c, tokens)
	b.add("cu_seqlens", "<i4", max(e.segments, 1)+1)
	b.add("max_seqlen", "<i4")
	if c.shape.Local {
		b.add("cu_seqlens_local", "<i4", e.held+1)
		b.add("max_seqlen_local", "<i4")
	}
	return b.tensors, b.size
}

func (c *Collator) tokenDtype() string {
	if c.shape.TokenDtype == millrace.Int32 {
		return "<i4"
	}
	return "<i8"
}

// frame places tensors one after another, aligned.
type frame struct {
	tensors []Tensor
	size    int64
}

// addTokens adds the tensors of token ids, and those of positions.
func (b *frame) addTokens(c *Collator, shape ...int) {
	if !c.bare {
		b.add("tokens", c.tokenDtype(), shape...)
		b.add("labels", c.tokenDtype(), shape...)
	}
	b.add("position_ids", c.tokenDtype(), shape...)
}

func (b *frame) addMask(c *Collator, shape ...int) {
	if !c.bare {
		b.add("loss_mask", "<f4", shape...)
	}
}

func (b *frame) add(name, dtype string, shape ...int) {
	bytes := int64(dtype[2] - '0')
	for _, n := range shape {
		bytes *= int64(n)
	}
	b.tensors = append(b.tensors, Tensor{Name: name, Dtype: dtype, Shape: shape, Offset: b.size, Bytes: bytes})
	b.size += (bytes + align - 1) / align * align
}

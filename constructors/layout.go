package constructors

import "millrace"

// align is where tensors begin in a frame, in bytes: a cache line, and enough for any vector load.
const align = 64

// Tensor is one array of a microbatch and where it lies in the frame.
type Tensor struct {
	Name   string
	Dtype  string // NumPy dtype.str: <i8, <i4, <f4
	Shape  []int
	Offset int64 // bytes from the start of the frame
	Bytes  int64
}

// Layout returns the microbatch's tensors and the frame's size in bytes. Packed: tokens, labels, position_ids, segment_ids,
// loss_mask, each [micro_batch_size, sequence_length], whatever the part. Varlen: tokens, labels, position_ids, loss_mask, each
// [n] with n the tokens placed (at least 1), cu_seqlens [segments + 1] and max_seqlen [].
func (c *Collator) Layout(part []millrace.Assignment) ([]Tensor, int64) {
	if c.shape.Layout == millrace.Varlen {
		return c.varlen(c.length(part), max(len(part), 1))
	}
	rows, cols := int(c.shape.MicroBatch), int(c.shape.SequenceLength)
	var b frame
	b.add("tokens", c.tokenDtype(), rows, cols)
	b.add("labels", c.tokenDtype(), rows, cols)
	b.add("position_ids", c.tokenDtype(), rows, cols)
	b.add("segment_ids", "<i4", rows, cols)
	b.add("loss_mask", "<f4", rows, cols)
	return b.tensors, b.size
}

// MaxBytes is the largest frame that any part of this shape needs.
func (c *Collator) MaxBytes() int64 {
	if c.shape.Layout == millrace.Varlen {
		_, size := c.varlen(int(c.shape.CapTokens), int(c.shape.CapTokens))
		return size
	}
	_, size := c.Layout(nil)
	return size
}

func (c *Collator) varlen(tokens, segments int) ([]Tensor, int64) {
	var b frame
	b.add("tokens", c.tokenDtype(), tokens)
	b.add("labels", c.tokenDtype(), tokens)
	b.add("position_ids", c.tokenDtype(), tokens)
	b.add("loss_mask", "<f4", tokens)
	b.add("cu_seqlens", "<i4", segments+1)
	b.add("max_seqlen", "<i4")
	return b.tensors, b.size
}

// length is the varlen arrays' length: the padded end of the last segment, 1 for an empty microbatch.
func (c *Collator) length(part []millrace.Assignment) int {
	if len(part) == 0 {
		return 1
	}
	last := &part[len(part)-1]
	return int(last.Start + c.padded(last.Length))
}

func (c *Collator) padded(length uint32) uint32 { return (length + c.pad - 1) / c.pad * c.pad }

func (c *Collator) tokenDtype() string {
	if c.shape.TokenDtype == millrace.Int32 {
		return "<i4"
	}
	return "<i8"
}

// frame lays tensors one after another, aligned.
type frame struct {
	tensors []Tensor
	size    int64
}

func (b *frame) add(name, dtype string, shape ...int) {
	bytes := int64(dtype[2] - '0')
	for _, n := range shape {
		bytes *= int64(n)
	}
	b.tensors = append(b.tensors, Tensor{Name: name, Dtype: dtype, Shape: shape, Offset: b.size, Bytes: bytes})
	b.size += (bytes + align - 1) / align * align
}

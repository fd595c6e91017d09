package sidecar

import (
	"encoding/binary"
	"fmt"

	"millrace"
	"millrace/constructors"
	"millrace/sidecar/ring"
)

const (
	batchFixed   = 72
	tensorRecord = 88
	batchLoss    = 16
	maxName      = 24
	maxDtype     = 8
	maxDims      = 4

	lineageFixed  = 8
	segmentRecord = 48
	stringRecord  = 8

	pairPart = 1<<16 - 2 // the part of the chosen segment of a pair; the rejected one has the next number
)

// filled is a frame with a whole microbatch, and the content of its BATCH message.
type filled struct {
	frame        ring.Frame
	slot         millrace.Slot
	term         millrace.Term
	microbatches uint32
	last         bool // it is the run's last microbatch of this rank
	placement    millrace.Digest
	tensors      []constructors.Tensor
	absent       bool   // the frame has no tensors: another rank broadcasts them
	loss         uint64 // labels of the microbatch that count in the loss
	// labels of the step that count in the loss, over all data-parallel ranks, or unknownLoss
	stepLoss uint64
	lineage  span
	state    span // empty except for a step's last microbatch
	bytes    int64
}

// span is a part of a frame, in bytes.
type span struct{ offset, bytes int64 }

func (f *filled) message() (message, error) {
	le := binary.LittleEndian
	b := make([]byte, 0, batchFixed+tensorRecord*len(f.tensors)+batchLoss)
	lineage, state := f.lineage, f.state
	for _, v := range []int64{f.frame.Offset(), f.bytes, lineage.offset, lineage.bytes, state.offset, state.bytes} {
		b = le.AppendUint64(b, uint64(v))
	}
	b = append(b, f.placement[:]...)
	b = le.AppendUint32(b, uint32(len(f.tensors)))
	b = le.AppendUint32(b, 0)
	for i := range f.tensors {
		var err error
		if b, err = appendTensor(b, &f.tensors[i]); err != nil {
			return message{}, err
		}
	}
	b = le.AppendUint64(b, f.loss)
	if f.stepLoss != unknownLoss {
		b = le.AppendUint64(b, f.stepLoss)
	}
	h := header{
		kind: msgBatch, attempt: f.slot.Attempt, term: f.term, step: f.slot.Step, microbatch: f.slot.Microbatch,
		microbatches: f.microbatches, ring: f.frame.Ring.Number(),
		frame: f.frame.Number, generation: f.frame.Generation,
		rank: uint32(f.slot.Rank),
	}
	if f.last {
		h.flags |= flagLast
	}
	if f.absent {
		h.flags |= flagAbsent
	}
	return message{header: h, body: b}, nil
}

func appendTensor(b []byte, t *constructors.Tensor) ([]byte, error) {
	if len(t.Name) > maxName || len(t.Dtype) > maxDtype || len(t.Shape) > maxDims {
		return nil, fmt.Errorf("describe tensor %q: its name, dtype %q or %d dimensions are too long for the protocol",
			t.Name, t.Dtype, len(t.Shape))
	}
	le := binary.LittleEndian
	b = appendPadded(b, t.Name, maxName)
	b = appendPadded(b, t.Dtype, maxDtype)
	b = le.AppendUint32(b, uint32(len(t.Shape)))
	b = le.AppendUint32(b, 0)
	for d := range maxDims {
		n := 0
		if d < len(t.Shape) {
			n = t.Shape[d]
		}
		b = le.AppendUint64(b, uint64(n))
	}
	b = le.AppendUint64(b, uint64(t.Offset))
	return le.AppendUint64(b, uint64(t.Bytes)), nil
}

func appendPadded(b []byte, s string, n int) []byte {
	b = append(b, s...)
	for range n - len(s) {
		b = append(b, 0)
	}
	return b
}

// appendLineage appends the lineage of a microbatch to b: one binary record for each segment, and each name once. Names
// are numbered in order of appearance, so that equal parts give equal bytes. fields are the passed-through fields of
// the segments, nil if none has any.
func appendLineage(
	b []byte, part []millrace.Assignment, sources []SourceNames, fields []string,
) ([]byte, error) {
	le := binary.LittleEndian
	names := newNameTable()
	start := len(b)
	b = le.AppendUint32(b, uint32(len(part)))
	b = le.AppendUint32(b, 0) // the number of names; set below
	for i := range part {
		a := &part[i]
		if int(a.Source) >= len(sources) || int(a.ID.Shard) >= len(sources[a.Source].Shards) {
			return nil, millrace.Errorf(millrace.ErrMismatch,
				"name segment %d: source %d shard %d is not in the manifest", i, a.Source, a.ID.Shard)
		}
		s := &sources[a.Source]
		b = le.AppendUint32(b, names.number(a.Source, wholeSource, s.Name))
		b = le.AppendUint32(b, names.number(a.Source, int64(a.ID.Shard), s.Shards[a.ID.Shard]))
		b = le.AppendUint64(b, uint64(a.Ordinal))
		b = le.AppendUint64(b, a.ID.Record)
		for _, v := range []uint32{uint32(a.Epoch), a.Offset, a.Length, a.Row, a.Start, sliceOf(a)} {
			b = le.AppendUint32(b, v)
		}
	}
	le.PutUint32(b[start+4:], uint32(len(names.names)))
	at := lineageFixed + segmentRecord*len(part) + stringRecord*len(names.names)
	for _, s := range names.names {
		b = le.AppendUint32(b, uint32(at))
		b = le.AppendUint32(b, uint32(len(s)))
		at += len(s)
	}
	for _, s := range names.names {
		b = append(b, s...)
	}
	return appendFields(b, start, fields), nil
}

// appendFields appends the fields of the segments to a lineage that begins at start: the places of all, then their
// texts. A lineage without fields stays as it is.
func appendFields(b []byte, start int, fields []string) []byte {
	le := binary.LittleEndian
	at := len(b) - start + stringRecord*len(fields)
	for _, text := range fields {
		b = le.AppendUint32(b, uint32(at))
		b = le.AppendUint32(b, uint32(len(text)))
		at += len(text)
	}
	for _, text := range fields {
		b = append(b, text...)
	}
	return b
}

// sliceOf encodes a rank's part of a segment. If one context-parallel rank holds the whole segment, the code is that
// rank + 1. Otherwise it is parts<<16 | part.
func sliceOf(a *millrace.Assignment) uint32 {
	switch {
	case a.Half > 0:
		return pairPart + a.Half - constructors.Chosen
	case a.Holder > 0:
		return a.Holder
	}
	return a.Parts<<16 | a.Part
}

// wholeSource is the shard number of the name of the source itself.
const wholeSource = int64(-1)

type nameKey struct {
	source uint32
	shard  int64
}

type nameTable struct {
	numbers map[nameKey]uint32
	names   []string
}

func newNameTable() *nameTable { return &nameTable{numbers: map[nameKey]uint32{}} }

func (t *nameTable) number(source uint32, shard int64, name string) uint32 {
	k := nameKey{source, shard}
	n, ok := t.numbers[k]
	if !ok {
		n = uint32(len(t.names))
		t.numbers[k] = n
		t.names = append(t.names, name)
	}
	return n
}

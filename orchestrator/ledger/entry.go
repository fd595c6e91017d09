package ledger

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/crypto/blake2b"

	"millrace"
	"millrace/checkpoint"
	pb "millrace/proto"
)

// Entry is the part of a sealed step that the ledger keeps for ever. Encoded:
//
//	content, placement, chain  16 bytes each
//	whole                      byte: 1 if every source of the step has its range, 0 if there was no room for all
//	ranges                     by source, ascending; each: sources skipped, from, to-from as uvarints
type Entry struct {
	Content, Placement millrace.Digest
	Chain              millrace.Digest // digest chain up to and including the step
	whole              bool
	ranges             []*pb.OrdinalRange
}

const entryFixed = 3*len(millrace.Digest{}) + 1

// NewEntry returns the entry of a plan; chain is the digest chain up to and including its step.
func NewEntry(p *pb.Plan, chain []byte) *Entry {
	e := &Entry{Content: digest(p.Content), Placement: digest(p.Placement), Chain: digest(chain), whole: true}
	bySource := map[uint32]*pb.OrdinalRange{}
	a := p.GetAssignments()
	for i, source := range a.GetSource() {
		n := a.Ordinal[i]
		if r := bySource[source]; r != nil {
			r.From, r.To = min(r.From, n), max(r.To, n)
		} else {
			bySource[source] = &pb.OrdinalRange{Source: source, From: n, To: n}
		}
	}
	e.ranges = slices.SortedFunc(maps.Values(bySource),
		func(x, y *pb.OrdinalRange) int { return cmp.Compare(x.Source, y.Source) })
	return e
}

// Encode returns the entry's bytes, at most checkpoint.MaxDigest. It leaves out ranges for which there is no room.
func (e *Entry) Encode() []byte {
	out := make([]byte, 0, 128)
	for _, d := range []millrace.Digest{e.Content, e.Placement, e.Chain} {
		out = append(out, d[:]...)
	}
	out = append(out, 1)
	next := uint32(0)
	for _, r := range e.ranges {
		one := binary.AppendUvarint(nil, uint64(r.Source-next))
		one = binary.AppendUvarint(binary.AppendUvarint(one, r.From), r.To-r.From)
		if len(out)+len(one) > checkpoint.MaxDigest {
			out[entryFixed-1] = 0
			break
		}
		out, next = append(out, one...), r.Source+1
	}
	return out
}

var errEntry = errors.New("the bytes are no ledger entry of this format")

func decodeEntry(b []byte) (*Entry, error) {
	if len(b) < entryFixed {
		return nil, errEntry
	}
	e := &Entry{Content: digest(b), Placement: digest(b[16:]), Chain: digest(b[32:]), whole: b[entryFixed-1] == 1}
	r := numbers{rest: b[entryFixed:]}
	for next := uint64(0); len(r.rest) > 0 && !r.short; {
		source, from := next+r.next(), r.next()
		e.ranges = append(e.ranges, &pb.OrdinalRange{Source: uint32(source), From: from, To: from + r.next()})
		next = source + 1
	}
	if r.short {
		return nil, errEntry
	}
	return e, nil
}

// decodeStored decodes the entry of a stored step and names the step in errors.
func decodeStored(stored checkpoint.Entry) (*Entry, error) {
	e, err := decodeEntry(stored.Digest)
	if err != nil {
		return nil, fmt.Errorf("read ledger entry %s: %w: %w", stored.Key, err, checkpoint.ErrCorrupt)
	}
	return e, nil
}

// ReadEntry reads a step's entry, and whether the step was ever sealed.
func ReadEntry(store *checkpoint.Store, key checkpoint.StepKey) (*Entry, bool, error) {
	stored, ok, err := store.Entry(key)
	if err != nil || !ok {
		return &Entry{}, false, err
	}
	e, err := decodeStored(stored)
	if err != nil {
		return &Entry{}, false, err
	}
	return e, true, nil
}

// Chain returns the digest chain after a step. before is the chain after the previous step, empty at the start of an
// attempt.
func Chain(before []byte, attempt uint32, content, placement, delta []byte) []byte {
	h, err := blake2b.New(len(millrace.Digest{}), nil)
	if err != nil {
		panic(fmt.Sprintf("blake2b-128: %v", err)) // only other sizes fail
	}
	if len(before) == 0 {
		before = binary.LittleEndian.AppendUint32(nil, attempt)
	}
	for _, part := range [][]byte{before, content, placement, delta} {
		h.Write(part)
	}
	return h.Sum(nil)
}

// DescribeEntry describes an encoded entry in words.
func DescribeEntry(encoded []byte) string {
	e, err := decodeEntry(encoded)
	if err != nil {
		return err.Error()
	}
	ordinals := uint64(0)
	for _, r := range e.ranges {
		ordinals += r.To - r.From + 1
	}
	more := ""
	if !e.whole {
		more = " and more"
	}
	return fmt.Sprintf("content %s, placement %s, chain %s, %d ordinals of %d sources%s", e.Content, e.Placement,
		e.Chain, ordinals, len(e.ranges), more)
}

func digest(b []byte) (d millrace.Digest) {
	copy(d[:], b)
	return d
}

// numbers reads uvarints; short is set once the bytes end too early.
type numbers struct {
	rest  []byte
	short bool
}

func (r *numbers) next() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.rest, r.short = nil, true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

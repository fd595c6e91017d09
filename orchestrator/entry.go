package orchestrator

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
	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// entry is what the ledger keeps of a step for ever.
//
//	content, placement, chain  16 bytes each
//	whole                      byte: 1 where every source of the step has its range, 0 where there was no room for all
//	ranges                     by source, ascending; each: sources passed over, from, to-from as uvarints
type entry struct {
	content, placement, chain millrace.Digest
	whole                     bool
	ranges                    []*pb.OrdinalRange
}

const entryFixed = 3*len(millrace.Digest{}) + 1

// entryOf is the entry of a plan; chain is that of the step.
func entryOf(p *pb.Plan, chain []byte) *entry {
	e := &entry{content: digest(p.Content), placement: digest(p.Placement), chain: digest(chain), whole: true}
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
	e.ranges = slices.SortedFunc(maps.Values(bySource), func(x, y *pb.OrdinalRange) int { return cmp.Compare(x.Source, y.Source) })
	return e
}

// encode writes as many ranges as an entry has room for.
func (e *entry) encode() []byte {
	out := make([]byte, 0, 128)
	for _, d := range []millrace.Digest{e.content, e.placement, e.chain} {
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

var errEntry = errors.New("it is no ledger entry of this format")

func decodeEntry(b []byte) (*entry, error) {
	if len(b) < entryFixed {
		return nil, errEntry
	}
	e := &entry{content: digest(b), placement: digest(b[16:]), chain: digest(b[32:]), whole: b[entryFixed-1] == 1}
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

func digest(b []byte) (d millrace.Digest) {
	copy(d[:], b)
	return d
}

// numbers reads uvarints and remembers that there were too few.
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

// chained is the digest chain after a step; before is that of the step before, empty where the attempt begins.
func chained(before []byte, attempt uint32, content, placement, delta []byte) []byte {
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

// cursor is a place in a source: an ordinal, and the tokens of it that lie before.
type cursor struct{ ordinal, offset uint64 }

func (c cursor) before(o cursor) bool {
	return c.ordinal < o.ordinal || c.ordinal == o.ordinal && c.offset < o.offset
}

// stand is where a source stands at an index entry: steps from it on hold nothing below floor, and before it, but for the steps that lie back, nothing
// from drawn on.
type stand struct {
	floor, drawn cursor
	back         uint64
}

// cursorsOf is an index entry's body: where each source's cursor stands, in two uvarints. Inside a window, or where segments are carried, then the
// steps of the window that are behind and, of each source, how many ordinals its floor lies below the cursor, as uvarints.
func cursorsOf(st *planner.State) []byte {
	var out []byte
	for i := range st.Sources {
		out = binary.AppendUvarint(out, uint64(st.Sources[i].Ordinal))
		out = binary.AppendUvarint(out, uint64(st.Sources[i].Offset))
	}
	if st.Done.Steps == 0 && len(st.Carried) == 0 {
		return out
	}
	out = binary.AppendUvarint(out, uint64(st.Done.Steps))
	for i := range st.Sources {
		out = binary.AppendUvarint(out, uint64(st.Sources[i].Ordinal-st.Floor(i)))
	}
	return out
}

// standIn reads where one of so many sources stands from an index entry.
func standIn(body []byte, source, sources int) (stand, error) {
	r := numbers{rest: body}
	var s stand
	for i := range sources {
		if c := (cursor{r.next(), r.next()}); i == source {
			s.floor, s.drawn = c, c
		}
	}
	if len(r.rest) > 0 {
		s.back = r.next()
		for i := range sources {
			if below := r.next(); i == source && below > 0 {
				s.floor = cursor{s.floor.ordinal - min(below, s.floor.ordinal), 0}
			}
		}
	}
	if r.short || source >= sources {
		return stand{}, fmt.Errorf("an index entry has no source %d", source)
	}
	return s, nil
}

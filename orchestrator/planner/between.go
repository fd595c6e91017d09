package planner

import (
	"encoding/binary"
	"slices"

	"millrace"
)

// between is the part of a Delta that tells of windows and of what is carried.
//
//	inside   byte: 1 where the window goes on behind the step; then the document tokens that it placed, a uvarint, and nothing else follow
//	legs     uvarint, of the window that ends, less one; of each but the last its charge and its tokens, uvarints
//	packed   uvarint, of what was carried before, how many are not any more; of each, ascending, how many are passed over since the one before
//	waits    uvarint, how many are carried newly; each as in a State
//
// What stays carried grows older by the window's steps. What the window placed is what was drawn and carried before, less what is carried behind it.
type between struct {
	inside bool
	placed uint64 // inside alone
	legs   []Leg  // but for the last
	packed []int  // of State.Carried
	waits  []Carried
}

// betweenOf finds what a step changed beside the sources; nil where there is nothing of the kind. A window has drawn nothing until it ends.
func betweenOf(before, after *State, legs []Leg) *between {
	if !before.between() && !after.between() {
		return nil
	}
	if after.Done.Steps > 0 {
		return &between{inside: true, placed: after.Tokens - before.Tokens}
	}
	out := &between{legs: legs[:max(len(legs)-1, 0)]}
	stays := make(map[Carried]bool, len(before.Carried))
	for i, c := range before.Carried {
		c.Age = grown(c.Age, before.Done.Steps+1)
		at, found := slices.BinarySearchFunc(after.Carried, c, Carried.compare)
		if stays[c] = found && after.Carried[at] == c; !stays[c] {
			out.packed = append(out.packed, i)
		}
	}
	for _, c := range after.Carried {
		if !stays[c] {
			out.waits = append(out.waits, c)
		}
	}
	return out
}

// append writes it, where sources are those after the step.
func (b *between) append(out []byte, sources []SourceState) []byte {
	if b.inside {
		return binary.AppendUvarint(append(out, 1), b.placed)
	}
	out = binary.AppendUvarint(append(out, 0), uint64(len(b.legs)))
	for _, l := range b.legs {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(l.Charge)), l.Tokens)
	}
	out = binary.AppendUvarint(out, uint64(len(b.packed)))
	next := 0
	for _, i := range b.packed {
		out = binary.AppendUvarint(out, uint64(i-next))
		next = i + 1
	}
	return appendCarried(out, b.waits, sources)
}

// movement reads what needs no sources: all but what waits.
func (r *compactReader) movement() *between {
	inside := r.byte()
	r.bad = r.bad || inside > 1
	if inside == 1 {
		return &between{inside: true, placed: r.unsigned(max64)}
	}
	b := &between{}
	for n := r.unsigned(millrace.MostWindow - 1); n > 0 && !r.bad; n-- {
		b.legs = append(b.legs, Leg{Charge: int64(r.unsigned(max64 >> 1)), Tokens: r.unsigned(max64)})
	}
	next := 0
	for n := r.unsigned(stateCarried); n > 0 && !r.bad; n-- {
		next += int(r.unsigned(stateCarried))
		b.packed = append(b.packed, next)
		next++
	}
	return b
}

// carriage reads what waits, where sources are those after the step.
func (r *compactReader) carriage(b *between, sources []SourceState) {
	if !b.inside && !r.bad {
		b.waits = r.carriedList(sources)
	}
}

// apply moves all of a state but its sources; drawn is what the sources drew. It reports whether that can be.
func (b *between) apply(st *State, drawn uint64) bool {
	st.Step++
	if b.inside { // sources may have moved over a skip
		st.Tokens += b.placed
		st.Done = Done{st.Done.Steps + 1, st.Done.Tokens + b.placed}
		return drawn == 0
	}
	st.Tokens += drawn + lengthOf(st.Carried) - st.Done.Tokens
	steps := st.Done.Steps + 1
	st.Done = Done{}
	packed := b.packed
	var carried []Carried
	for i, c := range st.Carried {
		if len(packed) > 0 && packed[0] == i {
			packed = packed[1:]
			continue
		}
		c.Age = grown(c.Age, steps)
		carried = append(carried, c)
	}
	for _, c := range b.waits {
		at, twice := slices.BinarySearchFunc(carried, c, Carried.compare)
		if twice {
			return false
		}
		carried = slices.Insert(carried, at, c)
	}
	st.Carried = carried
	st.Tokens -= lengthOf(carried)
	return len(packed) == 0
}

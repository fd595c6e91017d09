package progress

import (
	"encoding/binary"
	"slices"

	"millrace"
)

// Leg is one step's share of a window's draws: their total charge and their document tokens. The draws of a leg follow
// the mixture of its step, even if another step of the window places them. A Differ predicts deficits from the legs.
type Leg struct {
	Charge int64
	Tokens uint64
}

// windowChange is the part of a Delta about windows and carried segments.
//
//	inside  byte: 1 if the step does not end its window; then only the document tokens that the step placed follow
//	legs    uvarint, legs of the window that ends, less one; charge and tokens of each but the last, uvarints
//	packed  uvarint, segments that are no longer carried; of each, ascending, the segments passed over before it
//	waits   uvarint, number of newly carried segments; each as in a State
//
// Segments that stay grow older by the window's steps. A window places everything that was drawn and carried before,
// less the segments that are carried after it.
type windowChange struct {
	inside bool
	placed uint64 // only if inside
	legs   []Leg  // without the last
	packed []int  // indexes in State.Carried
	waits  []Carried
}

// windowChangeOf returns the change of windows and carried segments; nil if both states are plain. A window has drawn
// nothing until it ends.
func windowChangeOf(before, after *State, legs []Leg) *windowChange {
	if before.isPlain() && after.isPlain() {
		return nil
	}
	if after.Done.Steps > 0 {
		return &windowChange{inside: true, placed: after.Tokens - before.Tokens}
	}
	out := &windowChange{legs: legs[:max(len(legs)-1, 0)]}
	stays := make(map[Carried]bool, len(before.Carried))
	for i, c := range before.Carried {
		c.Age = Older(c.Age, before.Done.Steps+1)
		at, found := slices.BinarySearchFunc(after.Carried, c, Carried.Compare)
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

// appendWindowChange writes the change. sources are those after the step.
func appendWindowChange(out []byte, w *windowChange, sources []Source) []byte {
	if w.inside {
		return binary.AppendUvarint(append(out, 1), w.placed)
	}
	out = binary.AppendUvarint(append(out, 0), uint64(len(w.legs)))
	for _, l := range w.legs {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(l.Charge)), l.Tokens)
	}
	out = binary.AppendUvarint(out, uint64(len(w.packed)))
	next := 0
	for _, i := range w.packed {
		out = binary.AppendUvarint(out, uint64(i-next))
		next = i + 1
	}
	return appendCarried(out, w.waits, sources)
}

// readWindowChange reads everything but waits, which needs the sources after the step: see readWaits.
func (r *numbers) readWindowChange() *windowChange {
	switch r.flags() {
	case 0:
	case 1:
		return &windowChange{inside: true, placed: r.unsigned(max64)}
	default:
		r.fail()
	}
	w := &windowChange{}
	for n := r.unsigned(millrace.MostWindow - 1); n > 0 && !r.failed; n-- {
		w.legs = append(w.legs, Leg{Charge: int64(r.unsigned(max64 >> 1)), Tokens: r.unsigned(max64)})
	}
	next := 0
	for n := r.unsigned(mostCarried); n > 0 && !r.failed; n-- {
		next += int(r.unsigned(mostCarried))
		w.packed = append(w.packed, next)
		next++
	}
	return w
}

// readWaits reads the newly carried segments. sources are those after the step.
func (w *windowChange) readWaits(r *numbers, sources []Source) {
	if !w.inside && !r.failed {
		w.waits = r.readCarried(sources)
	}
}

// advance changes everything of a state but its sources; drawn is the number of tokens that these drew. It reports
// whether the change fits the state.
func (w *windowChange) advance(st *State, drawn uint64) bool {
	st.Step++
	if w.inside { // sources may have moved over a skip
		st.Tokens += w.placed
		st.Done = Done{st.Done.Steps + 1, st.Done.Tokens + w.placed}
		return drawn == 0
	}
	st.Tokens += drawn + LengthOf(st.Carried) - st.Done.Tokens
	steps := st.Done.Steps + 1
	st.Done = Done{}
	packed := w.packed
	var carried []Carried
	for i, c := range st.Carried {
		if len(packed) > 0 && packed[0] == i {
			packed = packed[1:]
			continue
		}
		c.Age = Older(c.Age, steps)
		carried = append(carried, c)
	}
	for _, c := range w.waits {
		at, twice := slices.BinarySearchFunc(carried, c, Carried.Compare)
		if twice {
			return false
		}
		carried = slices.Insert(carried, at, c)
	}
	st.Carried = carried
	st.Tokens -= LengthOf(carried)
	return len(packed) == 0
}

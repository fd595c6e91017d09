package config

import (
	"fmt"
	"slices"

	"millrace"
)

// checkAxes: what context parallelism asks of the padding, and what can be broadcast.
func (v *validator) checkAxes() {
	c := v.c
	if v.sound("parallelism", "pad_multiple", "sequence_length") && c.Parallelism.CP > 1 && uint64(c.PadMultiple)%(2*uint64(c.Parallelism.CP)) != 0 {
		v.wrong(v.written("parallelism.cp"), fmt.Sprintf("cp %d needs documents padded to a multiple of %d tokens, pad_multiple is %d",
			c.Parallelism.CP, 2*c.Parallelism.CP, c.PadMultiple), v.padCure())
	}
	if v.sound("cp_local", "layout") && c.CPLocal > 0 && c.Layout != millrace.Varlen {
		v.wrong("cp_local", "cp_local needs layout varlen", "write `layout: varlen`, or leave cp_local out: of packed rows every rank has its part of every document")
	}
	for i, axis := range c.Broadcast {
		path := fmt.Sprintf("broadcast[%d]", i)
		switch {
		case axis == "cp":
			v.wrong(path, "context-parallel ranks get slices of their own", "write axes of which all ranks need the same bytes: tp, pp")
		case axis != AxisTP && axis != AxisPP:
			v.wrong(path, "`broadcast` knows no axis "+quote(string(axis)), "write tp, pp, or both")
		case slices.Contains(c.Broadcast[:i], axis):
			v.wrong(path, quote(string(axis))+" stands there twice", "write it once")
		}
	}
}

// padCure names the least pad_multiple that goes with cp and the one that is there.
func (v *validator) padCure() string {
	pad, chunks := uint64(v.c.PadMultiple), 2*uint64(v.c.Parallelism.CP)
	a, b := pad, chunks
	for b != 0 {
		a, b = b, a%b
	}
	least := pad / a * chunks
	if !slices.ContainsFunc(v.c.AllStages(), func(s Stage) bool { return uint64(s.SequenceLength)%least != 0 }) {
		return fmt.Sprintf("write `pad_multiple: %d`; it is part of a run's identity", least)
	}
	return fmt.Sprintf("write `pad_multiple: %d` and a sequence_length that divides by it; both are part of a run's identity", least)
}

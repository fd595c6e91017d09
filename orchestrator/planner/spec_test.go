package planner

import (
	"errors"
	"testing"

	"millrace"
	"millrace/mixing"
)

func TestSpecRefused(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"no length":         func(s *Spec) { s.SequenceLength = 0 },
		"pad multiple":      func(s *Spec) { s.PadMultiple = 3 },
		"too long":          func(s *Spec) { s.SequenceLength = maxUnits + 1 },
		"no bins":           func(s *Spec) { s.GlobalBatch = 0 },
		"too many bins":     func(s *Spec) { s.GlobalBatch = maxBins + 1 },
		"sideways":          func(s *Spec) { s.Packing = "sideways" },
		"unit":              func(s *Spec) { s.Unit = "bytes" },
		"last step":         func(s *Spec) { s.LastStep = "" },
		"no sources":        func(s *Spec) { s.Sources = nil },
		"no schedule":       func(s *Spec) { s.Schedule = nil },
		"weights":           func(s *Spec) { s.Schedule = constant(t, "1") },
		"not sorted":        func(s *Spec) { s.Sources[0].Name = "z" },
		"two of a name":     func(s *Spec) { s.Sources[0].Name = "b" },
		"exhausted unsaid":  func(s *Spec) { s.Sources[1].OnExhausted = "" },
		"exhausted unknown": func(s *Spec) { s.Sources[1].OnExhausted = "again" },
		"a stage at 0":      func(s *Spec) { s.Stages = []Stage{{SequenceLength: 8, GlobalBatch: 4, Packing: millrace.Pad}} },
		"stages go back": func(s *Spec) {
			at := Stage{From: mixing.Point{Count: 5}, SequenceLength: 8, GlobalBatch: 4, Packing: millrace.Pad}
			s.Stages = []Stage{at, at}
		},
		"stages in two measures": func(s *Spec) {
			at := Stage{From: mixing.Point{Count: 5}, SequenceLength: 8, GlobalBatch: 4, Packing: millrace.Pad}
			later := at
			later.From = mixing.Point{Measure: mixing.Tokens, Count: 500}
			s.Stages = []Stage{at, later}
		},
		"a stage's packing": func(s *Spec) {
			s.Stages = []Stage{{From: mixing.Point{Count: 5}, SequenceLength: 8, GlobalBatch: 4, Packing: "loose"}}
		},
		"a ramp that goes down":   func(s *Spec) { s.Rampup = millrace.Rampup{Start: 8, Increment: 1, Samples: 10} },
		"a ramp that misses":      func(s *Spec) { s.Rampup = millrace.Rampup{Start: 1, Increment: 2, Samples: 10} },
		"a ramp without a length": func(s *Spec) { s.Rampup = millrace.Rampup{Start: 1, Increment: 1} },
		"a ramp from a token": func(s *Spec) {
			s.Stages = []Stage{{From: mixing.Point{Measure: mixing.Tokens, Count: 5}, SequenceLength: 8, GlobalBatch: 4, Packing: millrace.Pad,
				Rampup: millrace.Rampup{Start: 1, Increment: 1, Samples: 10}}}
		},
	} {
		spec := newSpec(t, 16, 4, "1", "1")
		change(spec)
		if _, err := NewSelector(spec, NewState(2)); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := NewSelector(newSpec(t, 16, 4, "1", "1"), NewState(3)); !errors.Is(err, millrace.ErrMismatch) {
		t.Errorf("a state of three sources: got %v", err)
	}
}

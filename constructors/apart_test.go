package constructors_test

import (
	"errors"
	"slices"
	"testing"

	"millrace"
	"millrace/constructors"
	"millrace/internal/tokenid"
)

// TestPairsAreTwoSegments: a pair is two segments in every tensor, under both layouts, and the content of the plan
// stays as it is. The loss counts agree before and after.
func TestPairsAreTwoSegments(t *testing.T) {
	at := func(start, length uint32) millrace.Assignment {
		return millrace.Assignment{Segment: millrace.Segment{Ordinal: 4, Length: length}, Start: start}
	}
	const u = tokenid.Untrained
	pair := []uint32{5 | tokenid.Begin, 6, 7, 5 | tokenid.Begin, 8 | u, 9}
	in := constructors.Content{
		Part:   []millrace.Assignment{at(0, 2), at(2, 6), at(8, 1)},
		Tokens: constructors.AllWide([][]uint32{{1, 2}, slices.Clone(pair), {3}}),
		Fields: []string{"a", "b", "c"},
	}
	out, err := in.Apart()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(in.Tokens[1].IDs(), pair) || len(in.Part) != 3 {
		t.Error("the content before was changed")
	}
	if !slices.Equal(out.Fields, []string{"a", "b", "b", "c"}) || out.Masked != nil || len(out.Part) != 4 {
		t.Fatalf("apart: %+v", out)
	}
	chosen, rejected := out.Part[1], out.Part[2]
	if chosen.Half != constructors.Chosen || chosen.Offset != 0 || chosen.Start != 2 || chosen.Length != 3 ||
		rejected.Half != constructors.Rejected || rejected.Offset != 3 || rejected.Start != 5 || rejected.Length != 3 {
		t.Errorf("halves %+v and %+v", chosen, rejected)
	}
	if !slices.Equal(out.Tokens[1].IDs(), []uint32{5 | u, 6, 7}) ||
		!slices.Equal(out.Tokens[2].IDs(), []uint32{5 | u, 8 | u, 9}) {
		t.Errorf("halves have tokens %x and %x", out.Tokens[1].IDs(), out.Tokens[2].IDs())
	}
	for _, layout := range []millrace.Layout{millrace.Packed, millrace.Varlen} {
		shape := millrace.Shape{SequenceLength: 9, MicroBatch: 1, Layout: layout, TokenDtype: millrace.Int32,
			CapTokens: 9}
		c := constructors.New(shape, 1)
		ts, size := c.Layout(out.Part)
		b := make([]byte, size)
		if err := c.Build(b, ts, out.Part, out.Tokens, nil); err != nil {
			t.Fatal(err)
		}
		want := map[string][]int32{
			"tokens":       {1, 2, 5, 6, 7, 5, 8, 9, 3},
			"labels":       {2, -100, 6, 7, -100, -100, 9, -100, -100},
			"position_ids": {0, 1, 0, 1, 2, 0, 1, 2, 0},
			"segment_ids":  {1, 1, 2, 2, 2, 3, 3, 3, 4},
			"cu_seqlens":   {0, 2, 5, 8, 9},
		}
		for _, tensor := range ts {
			if w := want[tensor.Name]; w != nil {
				got := make([]int32, len(w))
				for i := range got {
					at := tensor.Offset + 4*int64(i)
					got[i] = int32(uint32(b[at]) | uint32(b[at+1])<<8 | uint32(b[at+2])<<16 | uint32(b[at+3])<<24)
				}
				if !slices.Equal(got, w) {
					t.Errorf("%s %s is %v, want %v", layout, tensor.Name, got, w)
				}
			}
		}
		plan := &millrace.Plan{Ranks: 1, Microbatches: 1, Assignments: in.Part}
		all := constructors.StepLossTokens(plan) - constructors.UntrainedLabels(in.Part, in.Tokens, nil)
		if got := c.LossTokens(out.Part, out.Tokens, nil); got != 4 || all != got {
			t.Errorf("%s: %d labels in the microbatch, %d in the step, want 4", layout, got, all)
		}
	}
	masked := in
	masked.Masked, masked.Tokens = []bool{false, true, false}, slices.Clone(in.Tokens)
	masked.Tokens[1] = constructors.Tokens{}
	if out, err := masked.Apart(); err != nil || len(out.Part) != 3 {
		t.Errorf("a masked pair: %+v, %v", out, err)
	}
	for name, change := range map[string]func(*millrace.Assignment, *[]uint32){
		"goes on":   func(a *millrace.Assignment, _ *[]uint32) { a.More = true },
		"is a rest": func(a *millrace.Assignment, _ *[]uint32) { a.Offset = 2 },
		"is half":   func(a *millrace.Assignment, ids *[]uint32) { a.Length, *ids = 3, (*ids)[:3] },
		"is sliced": func(a *millrace.Assignment, _ *[]uint32) { a.Parts = 2 },
	} {
		a, ids := at(0, 6), slices.Clone(pair)
		change(&a, &ids)
		_, err := constructors.Content{Part: []millrace.Assignment{a},
			Tokens: constructors.AllWide([][]uint32{ids})}.Apart()
		if !errors.Is(err, millrace.ErrMismatch) {
			t.Errorf("a pair that %s: %v", name, err)
		}
	}
}

// TestSequencesOfPackedDocuments: each sequence of a packed document is a segment, also in the parts of a document that
// a plan cut, and no label crosses a border. The loss counts agree before and after.
func TestSequencesOfPackedDocuments(t *testing.T) {
	const u, s = tokenid.Untrained, tokenid.Start
	document := []uint32{1, 2, 3 | s, 4 | s, 5, 6 | u, 7, 8 | s, 9}
	for _, c := range []struct {
		name         string
		from, length int
		want         [][]uint32 // tokens of the segments, and behind the last one its label if the document goes on
		labels       uint64
	}{
		{"whole", 0, 9, [][]uint32{{1, 2}, {3 | u}, {4 | u, 5, 6 | u, 7}, {8 | u, 9}}, 1 + 0 + 2 + 1},
		{"cut inside a sequence", 0, 5, [][]uint32{{1, 2}, {3 | u}, {4 | u, 5, 6 | u}}, 1 + 0 + 1},
		{"cut at a border", 0, 7, [][]uint32{{1, 2}, {3 | u}, {4 | u, 5, 6 | u, 7, 8 | u}}, 1 + 0 + 2},
		{"from a border", 7, 2, [][]uint32{{8 | u, 9}}, 1},
		{"from inside", 6, 3, [][]uint32{{7}, {8 | u, 9}}, 1},
	} {
		more := c.from+c.length < len(document)
		end := c.from + c.length
		if more {
			end++
		}
		a := millrace.Assignment{Segment: millrace.Segment{Ordinal: 4, Offset: uint32(c.from), Length: uint32(c.length),
			More: more}, Start: 3}
		in := constructors.Content{Part: []millrace.Assignment{a}, Fields: []string{"f"},
			Tokens: constructors.AllWide([][]uint32{slices.Clone(document[c.from:end])})}
		out, err := in.Apart()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if !slices.Equal(in.Tokens[0].IDs(), document[c.from:end]) {
			t.Errorf("%s: the content before was changed", c.name)
		}
		at := uint32(0)
		for i, want := range c.want {
			got, last := out.Part[i], i == len(c.want)-1
			if !slices.Equal(out.Tokens[i].IDs(), want) || out.Fields[i] != "f" {
				t.Errorf("%s: segment %d has %x, want %x", c.name, i, out.Tokens[i].IDs(), want)
			}
			if got.Offset != a.Offset+at || got.Start != 3+at || got.More != (more && last) || got.Half != 0 {
				t.Errorf("%s: segment %d is %+v", c.name, i, got)
			}
			at += got.Length
		}
		if len(out.Part) != len(c.want) || at != uint32(c.length) {
			t.Errorf("%s: %d segments of %d tokens", c.name, len(out.Part), at)
		}
		plan := &millrace.Plan{Ranks: 1, Microbatches: 1, Assignments: in.Part}
		all := constructors.StepLossTokens(plan) - constructors.UntrainedLabels(in.Part, in.Tokens, nil)
		shape := millrace.Shape{SequenceLength: 16, MicroBatch: 1, Layout: millrace.Packed, TokenDtype: millrace.Int32}
		if got := constructors.New(shape, 1).LossTokens(out.Part, out.Tokens, nil); got != c.labels || all != got {
			t.Errorf("%s: %d labels in the microbatch, %d in the step, want %d", c.name, got, all, c.labels)
		}
	}
	sliced := millrace.Assignment{Segment: millrace.Segment{Length: 9}, Parts: 2}
	_, err := constructors.Content{Part: []millrace.Assignment{sliced},
		Tokens: constructors.AllWide([][]uint32{document})}.Apart()
	if !errors.Is(err, millrace.ErrMismatch) {
		t.Errorf("a sliced document: %v", err)
	}
}

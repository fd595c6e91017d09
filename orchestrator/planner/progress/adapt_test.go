package progress_test

import (
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/orchestrator/planner/progress"
)

func TestAdapt(t *testing.T) {
	st := progress.New(3)
	st.Step, st.Tokens = 9, 60
	st.Sources[0] = progress.Source{
		Ordinal:   7,
		Offset:    64,
		Tokens:    10,
		Samples:   8,
		Deficit:   -70,
		SeekPoint: millrace.SeekPoint{Ordinal: 5},
	}
	st.Sources[1] = progress.Source{Ordinal: 3, Tokens: 20, Samples: 3, Deficit: 30, Finished: true}
	st.Sources[2] = progress.Source{Ordinal: 4, Offset: 1, Tokens: 30, Samples: 5, Deficit: 40}
	same := st.Adapt([]progress.Mapping{{From: 0}, {From: 1}, {From: 2}})
	if !same.Equal(st) {
		t.Errorf("nothing changed, and it is %s", same)
	}
	for _, c := range []struct {
		name string
		fits []progress.Mapping
		want string
	}{
		{
			"another document", []progress.Mapping{{From: 0, IsReplaced: true}, {From: 1, IsReplaced: true}, {From: 2}},
			"[8,0,0,10,8,-70,0],[3,0,0,20,3,30,1],[4,1,0,30,5,40,0]",
		},
		{
			"another end", []progress.Mapping{{From: 0, IsReplaced: true}, {From: 1, HasNewEnd: true}, {From: 2}},
			"[8,0,0,10,8,-70,0],[3,0,0,20,3,30,0],[4,1,0,30,5,40,0]",
		},
		{
			"added", []progress.Mapping{{From: -1}, {From: 0, IsReplaced: true}, {From: 1}, {From: 2}},
			"[0,0,0,0,0,0,0],[8,0,0,10,8,-70,0],[3,0,0,20,3,30,1],[4,1,0,30,5,40,0]",
		},
		{
			"removed: sources that have not left share its deficit", []progress.Mapping{{From: 1}, {From: 2}},
			"[3,0,0,20,3,30,1],[4,1,0,30,5,-30,0]",
		},
		{
			"removed: evenly", []progress.Mapping{{From: 0, IsReplaced: true}, {From: 1, HasNewEnd: true}},
			"[8,0,0,10,8,-50,0],[3,0,0,20,3,50,0]",
		},
		{"removed: all sources that stay have left", []progress.Mapping{{From: 1}}, "[3,0,0,20,3,0,1]"},
		{"replaced by others", []progress.Mapping{{From: -1}, {From: -1}}, "[0,0,0,0,0,0,0],[0,0,0,0,0,0,0]"},
		{
			"in another order", []progress.Mapping{{From: 2}, {From: -1}, {From: 1}},
			"[4,1,0,30,5,-30,0],[0,0,0,0,0,0,0],[3,0,0,20,3,30,1]",
		},
	} {
		got := st.Adapt(c.fits)
		if want := `{"planner":3,"step":9,"tokens":60,"sources":[` + c.want + `]}`; got.String() != want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
		}
		if err := got.Validate(len(c.fits)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	odd := progress.New(3)
	odd.Sources[0].Deficit, odd.Sources[1].Deficit, odd.Sources[2].Deficit = 5, 2, -7
	for drop := range 3 {
		fits := []progress.Mapping{{From: (drop + 1) % 3}, {From: (drop + 2) % 3}}
		if err := odd.Adapt(fits).Validate(2); err != nil {
			t.Errorf("without source %d: %v", drop, err)
		}
	}
	carrying := st.Clone()
	carrying.Tokens -= 7
	carrying.Carried = []progress.Carried{
		{Source: 0, Ordinal: 5, Length: 3, Age: 2},
		{Source: 2, Ordinal: 1, Length: 4},
	}
	for _, c := range []struct {
		fits []progress.Mapping
		want []progress.Carried
	}{
		{[]progress.Mapping{{From: 0}, {From: 1}, {From: 2}}, carrying.Carried},
		{
			[]progress.Mapping{{From: 2}, {From: -1}, {From: 1}, {From: 0}},
			[]progress.Carried{{Source: 0, Ordinal: 1, Length: 4}, {Source: 3, Ordinal: 5, Length: 3, Age: 2}},
		},
		{[]progress.Mapping{{From: 0, IsReplaced: true}, {From: 1}, {From: 2}}, carrying.Carried[1:]},
	} {
		if got := carrying.Adapt(c.fits); !slices.Equal(got.Carried, c.want) || got.Validate(len(c.fits)) != nil {
			t.Errorf("%+v: %s, %v", c.fits, got, got.Validate(len(c.fits)))
		}
	}
	names := []string{"a", "b", "c"}
	if err := carrying.CheckAdaptable(names, func(name string) bool { return name == "b" }); err != nil {
		t.Error(err)
	}
	if err := carrying.CheckAdaptable(names, func(name string) bool { return name == "c" }); err == nil ||
		!strings.Contains(err.Error(), `"c" wait`) {
		t.Errorf("without a source that has waiting segments: %v", err)
	}
	carrying.Done = progress.Done{Steps: 2, Tokens: 5}
	if err := carrying.CheckAdaptable(names, func(string) bool { return false }); err == nil ||
		!strings.Contains(err.Error(), "begins at step 7") {
		t.Errorf("inside a window: %v", err)
	}
	if forgiven := st.ResetDeficits(); forgiven.Sources[0].Deficit != 0 || st.Sources[0].Deficit != -70 ||
		forgiven.Validate(3) != nil {
		t.Errorf("forgiven: %s", forgiven)
	}
}

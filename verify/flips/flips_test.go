package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/format/registry"
)

// TestFlips plays a short campaign over every sample.
func TestFlips(t *testing.T) {
	samples, err := loadSamples("../..")
	if err != nil {
		t.Fatal(err)
	}
	settings, err := loadSettings("../..")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := &campaign{samples: samples, settings: settings, cases: 800, seed: 1, dir: t.TempDir()}
	totals, err := c.play(&out)
	if err != nil {
		t.Fatal(err)
	}
	if totals.broken > 0 {
		t.Error(out.String())
	}
	for _, name := range registry.Name("").Words() {
		if totals.of[name] == nil {
			t.Errorf("format %s has no sample: add one to verify/flips/samples.go", name)
		}
	}
	var others []string
	for name := range totals.of {
		if !slices.Contains(registry.Name("").Words(), name) {
			others = append(others, name)
		}
	}
	if len(others) != 3 {
		t.Errorf("beside formats, the samples are of %q, want tokenizers, templates and mixtures", others)
	}
}

// TestJudge: each rule has a case that breaks it.
func TestJudge(t *testing.T) {
	whole := []*record{{text: []byte("a")}, {number: 1, text: []byte("b")}}
	other := []*record{{text: []byte("a")}, {number: 1, text: []byte("c")}}
	worse := []*record{{text: []byte("a")}, {number: 1, why: "bad"}}
	here := millrace.Errorf(millrace.ErrDamaged, "read /d/x.bin: cut")
	for _, c := range []struct {
		guards guards
		isCut  bool
		got    []*record
		err    error
		want   verdict
	}{
		{got: whole, want: equal},
		{got: other, want: changed},
		{got: worse, want: bad},
		{got: whole[:1], want: fewer},
		{got: whole[:1], isCut: true, want: fewer},
		{err: here, want: failed},
		{guards: guards{content: true}, got: other, want: broken},
		{guards: guards{content: true}, got: worse, want: bad},
		{guards: guards{count: true}, got: whole[:1], want: broken},
		{guards: guards{count: true}, got: whole[:1], isCut: true, want: fewer},
		{guards: guards{count: true, end: true}, got: whole[:1], isCut: true, want: broken},
		{guards: guards{end: true}, got: whole[:1], isCut: true, want: broken},
		{guards: guards{end: true}, got: whole[:1], want: fewer},
		{err: millrace.Errorf(millrace.ErrDamaged, "it is cut"), want: broken},
		{err: errors.New("read /d/x.bin: what?"), want: broken},
		{err: faulty("read /d/x.bin"), want: broken},
	} {
		s := &sample{guards: c.guards, files: map[string][]byte{"x.bin": nil}}
		if v, why := s.judge("/d/x.bin", c.isCut, whole, c.got, c.err); v != c.want || (v == broken) != (why != "") {
			t.Errorf("%+v: got %s (%s), want %s", c, v, why, c.want)
		}
	}
}

// TestACaseIsItsSeed: equal seeds damage a file equally, and damage changes it.
func TestACaseIsItsSeed(t *testing.T) {
	b := bytes.Repeat([]byte("some bytes "), 30)
	for seed := range uint64(500) {
		one, what := hurt(rand.New(rand.NewPCG(seed, 0)), b)
		two, again := hurt(rand.New(rand.NewPCG(seed, 0)), b)
		if !bytes.Equal(one, two) || what != again {
			t.Fatalf("seed %d: %s, then %s", seed, what, again)
		}
		if bytes.Equal(one, b) && !strings.HasPrefix(what, "bits") { // a bit may be flipped twice
			t.Fatalf("seed %d: %s changes nothing", seed, what)
		}
	}
}

// TestTotalsAddUp: the rows of a page grow by the cases of a campaign.
func TestTotalsAddUp(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("x\n\n"+formatsHead+"\n\n"+runsHead+"\n| --- |\n\ny\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &campaign{cases: 3, seed: 7}
	for range 2 {
		totals := &totals{of: map[string]*[verdicts]int{}}
		for _, v := range []verdict{failed, equal, equal} {
			totals.add("csv", v)
		}
		if err := totals.appendTo(page, c); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"x\n\n", "| `csv` | 6 | 2 | 0 | 4 | 0 | 0 | 0 |\n| all | 6 |", "| 7-9 | 3 | 0 |\n\ny\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

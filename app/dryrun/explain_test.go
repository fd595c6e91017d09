package dryrun

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/app/config"
)

// lengthsOf writes a file of lengths: record n has 1+n*7919%1000 tokens and n%5 patches.
func lengthsOf(t *testing.T, dir, name string, records int) {
	t.Helper()
	var b strings.Builder
	b.WriteString("tokens,patches\n")
	for n := range records {
		fmt.Fprintf(&b, "%d,%d\n", 1+n*7919%1000, n%5)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

const described = `
micro_batch_size: 2
layout: varlen
cap_slack: 1.2
mixture: {weights: {a: 1, b: 3}}
sources:
  a: {format: lengths, path: a.csv}
  b: {format: lengths, path: b.csv}
`

// walked plans the first steps of a mixture of two files of lengths on four ranks.
func walked(t *testing.T, more string, steps int, visit func(context.Context, *Walk, *Step)) {
	t.Helper()
	dir := t.TempDir()
	lengthsOf(t, dir, "a.csv", 400)
	lengthsOf(t, dir, "b.csv", 900)
	c, err := config.Parse(
		"m.yaml", []byte("version: 1\nsequence_length: 512\nglobal_batch_size: 24\n"+more+described), dir,
	)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Open(t.Context(), c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	err = o.Walk(t.Context(), 4, func(ctx context.Context, w *Walk) error {
		visit(ctx, w, nil)
		for range steps {
			s, err := w.Next(ctx)
			if err != nil {
				return err
			}
			visit(ctx, w, s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPatchesComeFromLengths: in every order, a document's patches are those of its own record, at its first token.
func TestPatchesComeFromLengths(t *testing.T) {
	for _, shuffle := range []string{"global", "blocks", "none"} {
		seen := 0
		walked(t, "shuffle: "+shuffle+"\n", 12, func(_ context.Context, _ *Walk, s *Step) {
			if s == nil {
				return
			}
			for _, a := range s.Plan.Assignments {
				want := uint32(a.ID.Record % 5)
				if a.Offset > 0 {
					want = 0
				}
				if a.Patches != want {
					t.Fatalf("%s: %+v has %d patches, want %d", shuffle, a.Segment, a.Patches, want)
				}
				seen += int(want)
			}
		})
		if seen == 0 {
			t.Errorf("%s: nothing had patches", shuffle)
		}
	}
}

// TestExplainedAddsUp computes the explanation of steps again, from the microbatches' costs and from all plans so far.
func TestExplainedAddsUp(t *testing.T) {
	placed := map[string]uint64{}
	var names []string
	walked(t, "window: 2\ncarry: 20\npad_multiple: 4\n", 9, func(_ context.Context, w *Walk, s *Step) {
		if s == nil {
			for _, m := range w.opened.Manifests() {
				names = append(names, m.Source)
			}
			return
		}
		e := w.Explain()
		near := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-4 {
				t.Errorf("step %d: %s is %g, want %g", e.Step, what, got, want)
			}
		}
		fsdp, padded := 0.0, uint64(0)
		for m := range e.Costs[0] {
			most := 0.0
			for _, of := range e.Costs {
				most = max(most, of[m])
			}
			fsdp += most / float64(len(e.Costs[0]))
		}
		near("fsdp", e.Overhead.FSDP, fsdp-1)
		near("dp", e.Overhead.DP, slices.Max(e.Ranks)-1)
		near("gap", e.Gap.FSDP, (1+e.Overhead.FSDP)/(1+e.Bound.FSDP)-1)
		for _, a := range s.Plan.Assignments {
			placed[names[a.Source]] += uint64(a.Length)
			padded += uint64(a.Length+3) / 4 * 4
		}
		if e.Stranded != 24*512-padded || e.Rounding != padded-e.Tokens {
			t.Errorf(
				"step %d: %d stranded and %d lost to padding, of %d tokens padded to %d", e.Step, e.Stranded,
				e.Rounding, e.Tokens, padded,
			)
		}
		all := uint64(0)
		for _, n := range placed {
			all += n
		}
		for i, m := range e.Mixture {
			target := []float64{.25, .75}[i] * float64(all)
			if m.Placed != placed[m.Source] || math.Abs(float64(m.Target)-target) > 1 ||
				m.Off != int64(m.Placed-m.Target) ||
				math.Abs(float64(m.Off)) > 22*512 {
				t.Errorf("step %d: %+v, placed %d, target %g", e.Step, m, placed[m.Source], target)
			}
		}
		count := uint64(0)
		for _, n := range w.Lengths() {
			count += n
		}
		if count != uint64(e.Segments) {
			t.Errorf("step %d: %d lengths of %d segments", e.Step, count, e.Segments)
		}
	})
}

// TestPricesLeaveThePlansAlone checks that pricing other settings does not change the plans, and that the present
// settings cost as much as the steps.
func TestPricesLeaveThePlansAlone(t *testing.T) {
	var digests [2][]millrace.Digest
	var prices *Prices
	over := 0.0
	for i := range digests {
		walked(t, "", 2*pricedSteps, func(ctx context.Context, w *Walk, s *Step) {
			if s != nil {
				digests[i] = append(digests[i], s.Plan.Placement)
				if i == 0 && len(digests[i]) <= pricedSteps {
					over += w.Explain().Overhead.FSDP / pricedSteps
				}
				return
			}
			if i == 0 {
				return
			}
			var err error
			if prices, err = w.Prices(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
	if !reflect.DeepEqual(digests[0], digests[1]) {
		t.Error("the plans differ")
	}
	var names []string
	for _, c := range prices.Choices {
		names = append(names, c.Choice)
	}
	want := []string{
		"as it is", "layout: packed", "layout: varlen, cap_slack: 1", "layout: varlen, cap_slack: 1.15", "balance: dp",
		"balance: none", "window: 4", "carry: 0",
	}
	if prices.Steps != pricedSteps || !slices.Equal(names, want) {
		t.Errorf("%d steps of %q, want %q", prices.Steps, names, want)
	}
	if is := prices.Choices[0]; math.Abs(is.Overhead.FSDP-over) > 1e-9 ||
		prices.Choices[5].Overhead.FSDP <= is.Overhead.FSDP {
		t.Errorf(
			"as it is costs %g, the steps %g, without balance %g", is.Overhead.FSDP, over,
			prices.Choices[5].Overhead.FSDP,
		)
	}
}

package sidecar_test

import (
	"context"
	"strings"
	"testing"

	"millrace"
	"millrace/sidecar"
	"millrace/sidecar/sidecartest"
)

// ofTwoHosts is a run of four ranks, the first two of which are on this host.
var ofTwoHosts = sidecartest.Config{
	Steps: 3, World: 4, Elsewhere: 2, Microbatches: 2, Rows: 2, Length: 16,
}

// TestBatchesOfAPartAreThoseOfTheWholePlan: bytes, origins, digest, state, and both counts of labels.
func TestBatchesOfAPartAreThoseOfTheWholePlan(t *testing.T) {
	for _, layout := range []millrace.Layout{millrace.Packed, millrace.Varlen} {
		c := ofTwoHosts
		c.Layout = layout
		h := open(t, c, nil)
		c.Elsewhere = 0
		whole := sidecartest.New(c)
		trainers := []*client{dial(t, h.path(0)), dial(t, h.path(1))}
		for _, tr := range trainers {
			tr.hello("fresh", nil)
		}
		for rank, tr := range trainers {
			tr.want(begin)
			for range c.Steps * c.Microbatches {
				b := tr.want(batchMsg)
				compare(t, whole, tr, b, millrace.Rank(rank))
				tr.release(b)
			}
			tr.commit(uint64(c.Steps) - 1)
			tr.want(end)
		}
	}
}

// TestAnUnknownCountIsLeftOut: some tokens do not count in the loss, and only the other host has their number.
func TestAnUnknownCountIsLeftOut(t *testing.T) {
	for _, elsewhere := range []int{0, 2} {
		c := ofTwoHosts
		c.World, c.Elsewhere, c.Untrained = 2+elsewhere, elsewhere, true
		h := open(t, c, nil)
		trainers := []*client{dial(t, h.path(0)), dial(t, h.path(1))}
		for _, tr := range trainers {
			tr.hello("fresh", nil)
		}
		trainers[0].want(begin)
		b := trainers[0].want(batchMsg)
		tensors := int(b.body[64])
		if got, want := len(b.body)-72-88*tensors, 16-4*elsewhere; got != want {
			t.Errorf("%d ranks are elsewhere: the counts of labels have %d bytes, want %d", elsewhere, got, want)
		}
	}
}

// broken damages the parts of plans.
type broken struct {
	sidecar.Upstream
	damage func(*millrace.Plan)
}

func (b broken) Plan(ctx context.Context, a millrace.Attempt, step millrace.Step) (*sidecar.StepPlan, error) {
	p, err := b.Upstream.Plan(ctx, a, step)
	if err == nil {
		b.damage(p.Plan)
	}
	return p, err
}

// TestNoBatchIsBuiltOfADamagedPart: the error names the step and the digests, and the rank if one is at fault.
func TestNoBatchIsBuiltOfADamagedPart(t *testing.T) {
	for want, damage := range map[string]func(*millrace.Plan){
		"verify step 0: the leaves of the ranks [0 1] have root ": func(p *millrace.Plan) { p.Proof[0][5] ^= 1 },
		"verify step 0 rank 0 microbatch 0: its 4 segments have digest ": func(p *millrace.Plan) {
			p.Assignments[0].Ordinal++
		},
	} {
		c := ofTwoHosts
		h := open(t, c, func(c *sidecar.Config) { c.Upstream = broken{c.Upstream, damage} })
		trainers := []*client{dial(t, h.path(0)), dial(t, h.path(1))}
		for _, tr := range trainers {
			tr.hello("fresh", nil)
		}
		trainers[0].want(begin)
		if m := trainers[0].want(errorMsg); !strings.Contains(string(m.body), want) ||
			!strings.Contains(string(m.body), ", the plan says ") {
			t.Errorf("got %q, want %q", m.body, want)
		}
	}
}

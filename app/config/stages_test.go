package config

import (
	"strings"
	"testing"

	"millrace"
	"millrace/app/config/identity"
)

func TestAStageInheritsWhatItLeavesOut(t *testing.T) {
	c := parse(t, string(read(t, "testdata/valid/stages.yaml")))
	type sizes struct {
		from                    uint64
		sequence, global, micro uint32
		ramp                    millrace.Rampup
		packing                 millrace.Packing
	}
	want := []sizes{
		{0, 2048, 64, 4, millrace.Rampup{Start: 16, Increment: 16, Samples: 4096}, millrace.BestFit},
		{200, 8192, 32, 1, millrace.Rampup{}, millrace.BestFit},
		{300, 8192, 32, 1, millrace.Rampup{}, millrace.Pad},
		{400, 8192, 64, 1, millrace.Rampup{Start: 32, Increment: 32, Samples: 100}, millrace.BestFit},
	}
	for i, s := range c.AllStages() {
		from, _ := s.From()
		if got := (sizes{from, s.SequenceLength, s.GlobalBatchSize, s.MicroBatchSize, s.RampupBatchSize.Ramp(),
			s.Packing}); got != want[i] {
			t.Errorf("stage %d: got %+v, want %+v", i, got, want[i])
		}
		shape := c.Shapes()[i]
		if shape.SequenceLength != want[i].sequence || shape.MicroBatch != want[i].micro ||
			shape.CapTokens != want[i].micro*want[i].sequence {
			t.Errorf("stage %d: shape %+v", i, shape)
		}
	}
	if got := c.StepTokens(); got != 64*8192 {
		t.Errorf("the largest step has %d places, want %d", got, 64*8192)
	}
	written := parse(
		t, string(read(t, "testdata/valid/stages.yaml"))+"    sequence_length: 8192\n    micro_batch_size: 2\n",
	).Identity(Facts{})
	if d := identity.Diff(c.Identity(Facts{}), written); d != nil {
		t.Errorf("an inherited value written out, and another micro_batch_size, change the identity: %q", d)
	}
	longer := parse(
		t,
		strings.Replace(
			string(read(t, "testdata/valid/stages.yaml")), "from_step: 300,", "from_step: 300, sequence_length: 4096,",
			1,
		),
	).Identity(Facts{})
	if d := strings.Join(identity.Diff(throughJSON(t, c.Identity(Facts{})), longer), "\n"); d !=
		"stages[1]: step 300: 32 x 8192 pad -> step 300: 32 x 4096 pad\nstages[2]: changed" {
		t.Errorf("got %s", d)
	}
}

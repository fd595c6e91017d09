package config

import (
	"errors"
	"slices"
	"testing"

	"millrace"
	"millrace/app/config/identity"
)

const withEval = base + `stages: [{from_step: 9, sequence_length: 4096}]
adaptive: {policy: ado}
streams:
  eval:
    mixture: {weights: {heldout: 1}}
    sources: {heldout: {path: heldout/*.jsonl}}
    global_batch_size: 8
    stop: {epochs: 1}
  twin: {}
`

// TestAStreamHasTheRunsKeys: a key that a stream lacks is the run's, but for those that describe a training.
func TestAStreamHasTheRunsKeys(t *testing.T) {
	c := parse(t, withEval)
	eval, err := c.Stream("eval")
	if err != nil {
		t.Fatal(err)
	}
	if eval.GlobalBatchSize != 8 || eval.SequenceLength != 2048 || eval.Tokenizer.Name != "gpt2" ||
		eval.Epochs() != 1 || len(eval.Stages) != 0 || eval.Adaptive != nil || len(eval.Streams) != 0 {
		t.Errorf("eval is %+v", eval)
	}
	if names := eval.Sources.Names(); !slices.Equal(names, []string{"heldout"}) {
		t.Errorf("eval has the sources %q", names)
	}
	twin, err := c.Stream("twin")
	if err != nil || twin.GlobalBatchSize != 512 || twin.Stop != nil || len(twin.Stages) != 0 {
		t.Errorf("twin is %+v: %v", twin, err)
	}
	if same, err := c.Stream("train"); same != c || err != nil {
		t.Errorf("the stream train is not the run: %v", err)
	}
	if _, err := c.Stream("evil"); !errors.Is(err, millrace.ErrInvalid) {
		t.Errorf("an unknown stream: %v", err)
	}
}

// TestStreamsChangeNoIdentity: the stream for training is the same beside others.
func TestStreamsChangeNoIdentity(t *testing.T) {
	alone := parse(t, withEval[:len(base)]+"stages: [{from_step: 9, sequence_length: 4096}]\nadaptive: {policy: ado}\n")
	beside := parse(t, withEval)
	if d := identity.Diff(alone.Identity(Facts{}), beside.Identity(Facts{})); len(d) > 0 {
		t.Errorf("streams change the identity: %v", d)
	}
	a, err := alone.MarshalResolved()
	if err != nil {
		t.Fatal(err)
	}
	b, err := beside.MarshalResolved()
	if err != nil || string(a) != string(b) {
		t.Errorf("streams change the configuration of the roles: %v", err)
	}
}

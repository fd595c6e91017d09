package constructors

import (
	"errors"
	"testing"

	"millrace"
)

func TestSetBuildsWhatThePlanSays(t *testing.T) {
	shapes := []millrace.Shape{
		{SequenceLength: 16, MicroBatch: 4, Layout: millrace.Packed, TokenDtype: millrace.Int64, CapTokens: 64},
		{SequenceLength: 64, MicroBatch: 2, Layout: millrace.Packed, TokenDtype: millrace.Int64, CapTokens: 128},
		{SequenceLength: 64, MicroBatch: 1, Layout: millrace.Packed, TokenDtype: millrace.Int64, CapTokens: 64},
	}
	set := NewSet(shapes, 1)
	for _, want := range shapes {
		for range 2 { // the second is the first again
			c, err := set.Of(&millrace.Plan{SequenceLength: want.SequenceLength, MicroBatch: want.MicroBatch})
			if err != nil || c.Shape() != want {
				t.Fatalf("got the shape %+v, %v, want %+v", c.Shape(), err, want)
			}
			if ts, _ := c.Layout(nil); ts[0].Shape[0] != int(want.MicroBatch) ||
				ts[0].Shape[1] != int(want.SequenceLength) {
				t.Fatalf("%+v: tokens are %v", want, ts[0].Shape)
			}
		}
	}
	if c, err := set.Of(&millrace.Plan{}); err != nil || c.Shape() != shapes[0] {
		t.Fatalf("a plan without a shape: %v", err)
	}
	if _, err := set.Of(&millrace.Plan{SequenceLength: 16, MicroBatch: 1}); !errors.Is(err, millrace.ErrMismatch) {
		t.Fatalf("a shape of no stage: %v", err)
	}
	if got, want := set.MaxBytes(), New(shapes[1], 1).MaxBytes(); got != want {
		t.Fatalf("frames of %d bytes, want those of the second stage, %d", got, want)
	}
}

package millrace_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	. "millrace"
)

// TestMark: an error carries its mark and its causes, and its text has no mark.
func TestMark(t *testing.T) {
	err := fmt.Errorf("source web: %w", Errorf(ErrDamaged, "open %s: %w", "a.jsonl", fs.ErrNotExist))
	if !errors.Is(err, ErrDamaged) || !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrInvalid) {
		t.Errorf("%v: lost its mark or its cause", err)
	}
	if got, want := err.Error(), "source web: open a.jsonl: file does not exist"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if Mark(nil, ErrDamaged) != nil {
		t.Error("a mark made an error of nil")
	}
}

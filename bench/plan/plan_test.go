package main

import (
	"fmt"
	"slices"
	"testing"
)

// TestGoals measures every goal that does not depend on the machine, at an eighth of the ranks and with one step each.
// It lists the missed goals, and fails if another goal is missed.
func TestGoals(t *testing.T) {
	b, err := newBench()
	if err != nil {
		t.Fatal(err)
	}
	b.divide, b.documents, b.steps, b.draws = 8, 1<<18, 1, 400_000
	var missing []string
	for _, g := range goals() {
		if g.timed {
			continue
		}
		rows, err := g.measure(b)
		if err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		for i, r := range rows {
			t.Logf("%s: %s: %s %s", r.name, r.claim, r.figure, r.result)
			if r.result == missed {
				missing = append(missing, fmt.Sprintf("%s.%d", r.name, i))
			}
		}
	}
	known := []string{
		"G3.1",                         // bins are so full that a perfect plan would be 1.076 times as fast
		"G8.1", "G8.3", "G8.5", "G8.7", // samples, when weights change or sources leave: below 2, not below 1
	}
	if !slices.Equal(missing, known) {
		t.Errorf("missed: %v, want %v", missing, known)
	}
}

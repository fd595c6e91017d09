package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Limits of the list of mutants.
const (
	leastMutants = 40
	mostInAFile  = 8
)

func patchesHere(t *testing.T) (root string, list []*mutant) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if list, err = load("patches"); err != nil {
		t.Fatal(err)
	}
	return root, list
}

// TestPatchesFit: every patch applies to the present product.
func TestPatchesFit(t *testing.T) {
	root, list := patchesHere(t)
	files := map[string]int{}
	for _, m := range list {
		changed, err := m.apply(root)
		if err != nil {
			t.Error(err)
		}
		for file := range changed {
			files[file]++
		}
		if m.breaks == "" || m.isPython() && m.judge != byChaos {
			t.Errorf("%s says too little, or has a judge that does not see it", m.name)
		}
	}
	if len(list) < leastMutants {
		t.Errorf("%d mutants, want %d", len(list), leastMutants)
	}
	for file, n := range files {
		if n > mostInAFile {
			t.Errorf("%d mutants are of %s, at most %d", n, file, mostInAFile)
		}
	}
}

// TestPatchesAreRead: a malformed patch, or one that applies twice or never, is an error and not a surviving mutant.
func TestPatchesAreRead(t *testing.T) {
	for _, text := range []string{
		"", "it\n", "it\njudge: me\n--- go.mod\n@@\n-module millrace\n", "it\njudge: sim\n@@\n-a\n",
		"it\njudge: sim\n--- go.mod\n-a\n", "it\njudge: sim\n--- go.mod\n@@\n\n", "it\njudge: sim\n",
	} {
		if _, err := parse("x", text); err == nil {
			t.Errorf("%q is a patch", text)
		}
	}
	for _, was := range []string{"-require (", "-module rill", "-module"} {
		m, err := parse("x", "it\njudge: sim\n--- go.mod\n@@\n"+was+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.apply("../.."); err == nil || !strings.Contains(err.Error(), "write the patch anew") {
			t.Errorf("%q: %v", was, err)
		}
	}
}

// TestSomeMutantsAreCaught: the simulation catches a few mutants without any fault, so the result does not depend on
// luck. It finds nothing in the unchanged product. A patch that breaks nothing is not caught, and that is an error.
func TestSomeMutantsAreCaught(t *testing.T) {
	root, list := patchesHere(t)
	harmless, err := parse("harmless",
		"Nothing\njudge: sim\n--- checkpoint/doc.go\n@@\n package checkpoint\n+\n+// Nothing is changed.\n")
	if err != nil {
		t.Fatal(err)
	}
	some := []*mutant{harmless}
	for _, m := range list {
		if m.name == "plan-dropped" {
			some = append(some, m)
		}
	}
	b := &bench{root: root, scratch: t.TempDir(), seeds: 24, limit: 5 * time.Minute}
	var out bytes.Buffer
	err = b.all(context.Background(), &out, some)
	want := "1 of 2 mutants were not caught: harmless"
	if err == nil || err.Error() != want || !strings.Contains(out.String(), "| **survived** 24 seeds |") {
		t.Errorf("%v, want %s\n%s", err, want, out.String())
	}
	t.Log(out.String())
}

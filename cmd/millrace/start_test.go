package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

var initialised = regexp.MustCompile(`(?m)^init (\S+) @.* ms clock, (\d+) bytes`)

// TestNoPackageFillsTheHeapAtItsStart holds what packages allocate before main runs. Every garbage collection of every
// role marks that again: tables of 4 MB cost a sidecar 5 % of its CPU.
func TestNoPackageFillsTheHeapAtItsStart(t *testing.T) {
	const most, mostOfOne = 3 << 20, 512 << 10 // bytes; 2.2 MB on 2026-11-30
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sum := 0
	for _, found := range initialised.FindAllSubmatch(out, -1) {
		n, err := strconv.Atoi(string(found[2]))
		if err != nil {
			t.Fatal(err)
		}
		if sum += n; n > mostOfOne {
			t.Errorf("package %s allocates %d bytes before main runs, and may allocate %d", found[1], n, mostOfOne)
		}
	}
	if sum == 0 {
		t.Fatalf("the runtime printed no lines of packages: %s", out)
	}
	if sum > most {
		t.Errorf("packages allocate %d bytes before main runs, and may allocate %d", sum, most)
	}
}

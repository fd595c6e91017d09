package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"millrace/app/up"
)

func TestTheFirstRankFollowsFromTheNumberOfTheHost(t *testing.T) {
	for text, want := range map[string]string{
		"--ranks 8":                             "--first-rank 0",
		"--ranks 8 --index 0":                   "--first-rank 0",
		"--ranks 8 --index 3":                   "--first-rank 24",
		"--ranks 8 --first-rank 24":             "--first-rank 24",
		"--allow-uids 7,8 --allow-uids 9":       "--first-rank 0 --allow-uids 7 --allow-uids 8 --allow-uids 9",
		"--ranks 8 --index 3 --first-rank 24":   "write one of them",
		"--ranks 8 --index -2":                  "want 0 or more",
		"--ranks 8 --index 1 --allow-uids 1000": "--first-rank 8 --allow-uids 1000",
	} {
		var s up.Serving
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		servingFlags(f, &s)
		if err := f.Parse(strings.Fields(text)); err != nil {
			t.Fatal(err)
		}
		if err := s.Resolve("millrace up"); err != nil {
			if !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s: %v", text, err)
			}
		} else if got := s.Args(); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}

// TestEnginesOfCommands: an `up` of several hosts asks Ray for loaders, and an orchestrator of its own Kubernetes.
func TestEnginesOfCommands(t *testing.T) {
	const accepted = "missing.yaml" // the next thing that is wrong
	for text, want := range map[string]string{
		"up --world-size 4 --ranks 2 --placer ray":        accepted,
		"up --world-size 4 --ranks 2 --placer kubernetes": "--placer kubernetes: want ray, or nothing",
		"up --ranks 4 --placer ray":                       "leave the flag out",
		"orchestrator --world-size 4 --placer kubernetes": accepted,
		"orchestrator --world-size 4 --placer ray":        "--placer ray: want kubernetes, or nothing",
	} {
		c := rootCommand()
		c.SetArgs(append(strings.Fields(text), "--cluster", "c.yaml", "--run-dir", t.TempDir(), "missing.yaml"))
		c.SetErr(t.Output())
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

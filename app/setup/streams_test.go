package setup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"millrace"
	"millrace/app/config"
	"millrace/app/setup"
)

func withStreams(t *testing.T, limits string, streams string) *config.Config {
	t.Helper()
	c, err := config.Parse("mixture.yaml", []byte(fmt.Sprintf(`version: 1
sequence_length: 128
global_batch_size: 8
loaders: 1
tokenizer: {name: gpt2}
mixture: {weights: {a: 1}}
sources: {a: {path: a/*.jsonl}}
limits: {%s}
streams: {%s}
`, limits, streams)), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStreamsDivideTheLimits: the parts of all streams are the limits of the run, `train` has twice the loader memory
// of another stream, and the streams have room for batches in proportion to their sizes.
func TestStreamsDivideTheLimits(t *testing.T) {
	c := withStreams(t, "loader_memory: 400MiB, sidecar_memory: 300MiB", "x: {}, y: {micro_batch_size: 2}")
	if err := setup.Divide(c, 2); err != nil {
		t.Fatal(err)
	}
	var loader, sidecar uint64
	for _, s := range c.All() {
		loader += uint64(s.Limits.LoaderMemory)
		sidecar += uint64(s.Limits.SidecarMemory)
		if s.Loaders.Count != 1 {
			t.Errorf("a stream has %d loaders", s.Loaders.Count)
		}
		if err := errors.Join(setup.CheckLoaderMemory(s), setup.CheckSidecarMemory(s, 2)); err != nil {
			t.Error(err)
		}
	}
	x, y := c.Streams[0].Config, c.Streams[1].Config
	if loader != 400<<20 || c.Limits.LoaderMemory != 2*x.Limits.LoaderMemory || x.Limits.LoaderMemory != 100<<20 {
		t.Errorf("loader memory: %v, %v, %v", c.Limits.LoaderMemory, x.Limits.LoaderMemory, y.Limits.LoaderMemory)
	}
	if sidecar > 300<<20 || sidecar < 299<<20 || y.Limits.SidecarMemory < x.Limits.SidecarMemory*3/2 {
		t.Errorf("sidecar memory: %v, %v, %v", c.Limits.SidecarMemory, x.Limits.SidecarMemory, y.Limits.SidecarMemory)
	}
}

// TestOneStreamKeepsItsLimits: a file without streams has the limits that it says.
func TestOneStreamKeepsItsLimits(t *testing.T) {
	c := withStreams(t, "loader_memory: 400MiB", "")
	before := c.Limits
	if err := setup.Divide(c, 2); err != nil || c.Limits != before {
		t.Errorf("%v: %+v", err, c.Limits)
	}
}

// TestStreamsThatDoNotFitAreRefused with a sufficient limit in the error.
func TestStreamsThatDoNotFitAreRefused(t *testing.T) {
	for _, test := range []struct{ limits, streams, want string }{
		{"loader_memory: 64MiB, sample_bytes: 1MiB", "x: {}, y: {}", "write at least 128MiB"},
		{"sidecar_memory: 64MiB", "x: {micro_batch_size: 8, sequence_length: 262144}", "sidecar_memory 64MiB is too"},
	} {
		err := setup.Divide(withStreams(t, test.limits, test.streams), 4)
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %s: %v, want %s", test.limits, test.streams, err, test.want)
		}
	}
}

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
	r, err := setup.Divide(c, setup.Host{Cores: 2, Files: 1000, Ranks: 2}, setup.Measured{})
	if err != nil {
		t.Fatal(err)
	}
	var loader, sidecar int64
	for name, s := range c.All() {
		part := r.Streams[name]
		loader += part.LoaderMemory
		sidecar += part.SidecarMemory
		if part.Fleet != r.Fleet || r.Fleet.Loaders != 1 {
			t.Errorf("stream %s has %d loaders, the run %d", name, part.Fleet.Loaders, r.Fleet.Loaders)
		}
		if err := errors.Join(setup.CheckLoaderMemory(s, part), setup.CheckSidecarMemory(s, part, 2)); err != nil {
			t.Error(err)
		}
	}
	train, x, y := r.Streams["train"], r.Streams["x"], r.Streams["y"]
	if loader != 400<<20 || train.LoaderMemory != 2*x.LoaderMemory || x.LoaderMemory != 100<<20 {
		t.Errorf("loader memory: %v, %v, %v", train.LoaderMemory, x.LoaderMemory, y.LoaderMemory)
	}
	if sidecar > 300<<20 || sidecar < 299<<20 || y.SidecarMemory < x.SidecarMemory*3/2 {
		t.Errorf("sidecar memory: %v, %v, %v", train.SidecarMemory, x.SidecarMemory, y.SidecarMemory)
	}
	if train.OpenFiles != 500 || x.OpenFiles != 250 || y.OpenFiles != 250 {
		t.Errorf("open files: %d, %d, %d", train.OpenFiles, x.OpenFiles, y.OpenFiles)
	}
}

// TestPartsFitTheirWhole: the parts of a part together are no more than it.
func TestPartsFitTheirWhole(t *testing.T) {
	for _, loaders := range []int{0, 1, 5} {
		c := withStreams(t, "loader_memory: 400MiB, sidecar_memory: 300MiB", "")
		p := setup.Alone(c, setup.Host{Cores: 8}, setup.Measured{Loaders: loaders})
		all := int64(p.Fleet.Most+p.Fleet.Shadows) * p.Reader.Heap
		if all > p.LoaderMemory || p.Reader.Payload > p.Reader.Heap {
			t.Errorf("%d loaders: %d of %d bytes, %+v", loaders, all, p.LoaderMemory, p.Reader)
		}
		s := p.Sidecar
		if s.Frames+s.Arenas+s.Heap > p.SidecarMemory || s.Reserve > s.Arenas || p.Runway > p.LoaderMemory {
			t.Errorf("%d bytes are divided as %+v, runway %d", p.SidecarMemory, s, p.Runway)
		}
	}
}

// TestOneStreamKeepsItsLimits: a file without streams has the limits that it says.
func TestOneStreamKeepsItsLimits(t *testing.T) {
	c := withStreams(t, "loader_memory: 400MiB", "")
	r, err := setup.Divide(c, setup.Host{Cores: 2, Files: 1000, Ranks: 2}, setup.Measured{})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Streams["train"]
	if p.LoaderMemory != int64(c.Limits.LoaderMemory) || p.SidecarMemory != int64(c.Limits.SidecarMemory) ||
		p.OpenFiles != 0 {
		t.Errorf("%+v", p)
	}
}

// TestStreamsThatDoNotFitAreRefused with a sufficient limit in the error.
func TestStreamsThatDoNotFitAreRefused(t *testing.T) {
	for _, test := range []struct{ limits, streams, want string }{
		{"loader_memory: 64MiB, sample_bytes: 1MiB", "x: {}, y: {}", "write at least 128MiB"},
		{"sidecar_memory: 64MiB", "x: {micro_batch_size: 8, sequence_length: 262144}", "sidecar_memory 64MiB is too"},
	} {
		c := withStreams(t, test.limits, test.streams)
		_, err := setup.Divide(c, setup.Host{Cores: 2, Files: 1000, Ranks: 4}, setup.Measured{})
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %s: %v, want %s", test.limits, test.streams, err, test.want)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"syscall"
	"time"

	"millrace/sources"
)

// Bounds of a case.
const (
	mostAllocated = 256 << 20        // bytes of one reading
	mostCPU       = 10 * time.Second // of the process
	mostShown     = 20               // broken cases that are printed in full
)

// campaign plays cases over samples and settings.
type campaign struct {
	samples  []*sample
	settings []*setting
	cases    int
	seed     uint64
	dir      string // of the files
}

// player plays cases over one sample or setting.
type player interface {
	id() string
	kind() string // the row of the totals
	play(rng *rand.Rand) (v verdict, path, what, why string)
}

// dataset is a sample on disk.
type dataset struct {
	*sample
	dir     string
	spec    sources.Spec
	whole   []*record
	indexes map[string][]byte
}

// play plays all cases, and prints those that broke a rule.
func (c *campaign) play(out io.Writer) (*totals, error) {
	t := &totals{of: map[string]*[verdicts]int{}, cases: c.cases}
	defer t.clock()()
	var players []player
	for _, s := range c.samples {
		d, err := s.lay(filepath.Join(c.dir, fmt.Sprint(len(players))))
		if err != nil {
			return nil, fmt.Errorf("sample %s: %w", s.name, err)
		}
		players = append(players, d)
	}
	for _, s := range c.settings {
		if err := s.lay(filepath.Join(c.dir, fmt.Sprint(len(players)))); err != nil {
			return nil, fmt.Errorf("setting %s: %w", s.name, err)
		}
		players = append(players, s)
	}
	for i := range c.cases {
		p := players[i%len(players)]
		v, path, what, why := p.play(rand.New(rand.NewPCG(c.seed+uint64(i), 0)))
		if t.add(p.kind(), v); v == broken && t.broken <= mostShown {
			fmt.Fprintf(out, "%s, %s: %s\n  %s\n  again: make flips ONLY=%s COUNT=1 SEED=%d\n", p.id(), path, what, why,
				p.id(), c.seed+uint64(i))
		}
	}
	return t, nil
}

func (d *dataset) id() string { return d.name }

func (d *dataset) kind() string { return d.format() }

// lay writes a sample below dir and reads it whole.
func (s *sample) lay(dir string) (*dataset, error) {
	d := &dataset{sample: s, dir: dir}
	if err := s.write(dir); err != nil {
		return nil, err
	}
	var err error
	if d.spec, err = s.spec(dir); err != nil {
		return nil, err
	}
	if d.whole, err = readAll(context.Background(), d.spec, rand.New(rand.NewPCG(1, 2))); err != nil {
		return nil, err
	}
	if len(d.whole) == 0 || !slices.ContainsFunc(d.whole, func(r *record) bool { return r.why == "" }) {
		return nil, errors.New("it has no good record")
	}
	d.indexes, err = indexesOf(context.Background(), d.spec)
	return d, err
}

// play damages one file of the dataset, reads it, and restores it.
func (d *dataset) play(rng *rand.Rand) (v verdict, path, what, why string) {
	names := d.names()
	path = names[rng.IntN(len(names))]
	b := d.files[path]
	hurt, what := hurt(rng, b)
	at := filepath.Join(d.dir, path)
	if err := replace(at, hurt); err != nil {
		return broken, path, what, err.Error()
	}
	defer replace(at, b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	limits := watch(fmt.Sprintf("%s, %s: %s", d.name, path, what))
	got, err := readAll(ctx, d.spec, rng)
	v, why = d.judge(at, len(hurt) < len(b), d.whole, got, err)
	if v != broken {
		v, why = d.withIndex(ctx, v, at)
	}
	if n := limits.end() / 3; n > mostAllocated { // twice, and with the index
		return broken, path, what, fmt.Sprintf("a reading allocated %d MiB", n>>20)
	}
	return v, path, what, why
}

// withIndex reads the damaged files with the indexes of the whole ones. Errors and other values are allowed there,
// panics are not.
func (d *dataset) withIndex(ctx context.Context, v verdict, path string) (verdict, string) {
	err := sources.Fence(errIndexed, func() string { return path }, func() error {
		return readWithIndex(ctx, d.spec, d.indexes)
	})
	var panicked *sources.PanicError
	switch {
	case errors.As(err, &panicked):
		return broken, "with the index of the whole file: " + err.Error() + "\n" + string(panicked.Stack)
	case err != nil && !isAboutFiles(err) && !errors.Is(err, os.ErrNotExist):
		return broken, "with the index of the whole file, the error is not of a damaged file: " + err.Error()
	}
	return v, ""
}

var errIndexed = errors.New("read with an index")

// limits watches the CPU time and the memory of one case.
type limits struct {
	allocated uint64
	done      chan struct{}
}

// watch begins to watch a case. If the case does not end, the process ends with its stacks.
func watch(what string) *limits {
	l := &limits{allocated: allocated(), done: make(chan struct{})}
	begun := cpu()
	stop := time.AfterFunc(time.Second, func() {
		for cpu()-begun < mostCPU {
			select {
			case <-l.done:
				return
			case <-time.After(time.Second):
			}
		}
		panic(fmt.Sprintf("%s: reading took %v of CPU time and does not end", what, mostCPU))
	})
	go func() { <-l.done; stop.Stop() }()
	return l
}

// end ends the watch and returns the bytes that the case allocated.
func (l *limits) end() uint64 {
	close(l.done)
	return allocated() - l.allocated
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

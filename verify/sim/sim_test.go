package sim

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// The settings of a campaign; see the target sim of the Makefile.
var (
	seeds  = flag.Uint64("seeds", 200, "number of seeds")
	from   = flag.Uint64("from", 0, "first seed")
	hosted = flag.Bool("hosts", false, "play only the seeds with several hosts")
	totals = flag.String("totals", "", "append the totals as a row to this file")
	judge  = flag.Bool("judge", false, "judge a mutant: stop at the first seed that fails, and keep no file")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(800) // fewer collections: a seed makes many small worlds
	os.Exit(m.Run())
}

// bench holds the workloads, and a run of each without faults. All seeds share it.
type bench struct {
	loads []*workload
	calm  []*world // by workload: the run without faults
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := newCalm(t)
	for i, load := range b.loads {
		b.calm[i].calm = calmly(t, load.other)
		if err := sameContent(b.calm[i], b.calm[i].calm); err != nil {
			t.Error(err)
		}
	}
	return b
}

// newCalm returns a bench of which no workload has run under its other topology.
func newCalm(t *testing.T) *bench {
	t.Helper()
	b := &bench{}
	dir := t.TempDir()
	for i := range workloads {
		b.loads = append(b.loads, newWorkload(t, dir, i))
		b.calm = append(b.calm, calmly(t, b.loads[i]))
	}
	return b
}

// calmly runs a workload without faults.
func calmly(t *testing.T, load *workload) (w *world) {
	t.Helper()
	calm := &script{Workload: load.number, Phases: []phase{{Start: "fresh", Until: int(load.steps)}}}
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(load, calm, nil)
		if o := w.live(); o.Violated != "" {
			t.Errorf("workload %d without faults: %s: %s", load.number, o.Violated, o.Detail)
		} else if err := w.settle(); err != nil {
			t.Errorf("workload %d without faults: %v", load.number, err)
		}
	})
	return w
}

// play runs a script.
func (b *bench) play(t *testing.T, s *script) (o verdict) {
	synctest.Test(t, func(*testing.T) { o = newWorld(b.loads[s.Workload], s, b.calm[s.Workload]).live() })
	return o
}

// golden is a digest of the batches of the workloads. If it changes, existing runs continue with other bytes.
const golden = "3b601ee5b44a63e33b6727ca3fd94b7e"

func TestWorkloadsDeliverGoldenBatches(t *testing.T) {
	if got := newCalm(t).delivered(); got != golden {
		t.Errorf("the workloads deliver %s, want %s", got, golden)
	}
}

// delivered returns a digest of the batches of all workloads without faults.
func (b *bench) delivered() string {
	h := sha256.New()
	for _, load := range b.loads {
		for r := range load.ranks {
			for step := range load.steps {
				fmt.Fprintf(h, "%d %d %d %s\n", load.number, r, step, b.calm[load.number].trainers[r].got[step])
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// TestFailedSeeds replays seeds that failed once, several times each, because a seed does not decide the order of
// goroutines.
func TestFailedSeeds(t *testing.T) {
	b := newBench(t)
	for _, f := range kept(t) {
		for i := range replays {
			if o := b.play(t, f.Script); o.Violated != "" {
				t.Errorf("%s, replay %d: %s: %s", f.path, i, o.Violated, o.Detail)
				break
			}
		}
	}
}

// TestSeeds: under faults of every kind, every rank gets the bytes of a run without faults, also after it goes back.
func TestSeeds(t *testing.T) {
	b, c := newBench(t), newCampaign()
	if *judge && (t.Failed() || b.delivered() != golden) {
		t.Fatal("judged: without faults: the workloads deliver other batches")
	}
	t.Run("all", func(t *testing.T) {
		for seed := *from; seed < *from+*seeds; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if *judge && c.wrong() {
					return
				}
				s := newScript(seed, b.loads)
				if *hosted && s.Hosts == 0 {
					return
				}
				o := b.play(t, s)
				n := c.count(o)
				if o.Violated == "" {
					return
				}
				if *judge {
					t.Fatalf("judged: seed %d, number %d: %s: %s", seed, n, o.Violated, o.Detail)
				}
				t.Errorf("workload %d: %s: %s", s.Workload, o.Violated, o.Detail)
				path, err := keep(b.shrink(t, s, o))
				if t.Logf("kept in %s", path); err != nil {
					t.Error(err)
				}
			})
		}
	})
	c.report(t)
}

// TestScriptsFollowFromSeeds: a seed gives the same script each time, and writing and reading a script does not change
// it.
func TestScriptsFollowFromSeeds(t *testing.T) {
	b := newBench(t)
	for seed := range uint64(200) {
		s := newScript(seed, b.loads)
		text, err := (&failure{Script: s, Violated: "x", Detail: "a\nb", Commit: "c"}).text()
		if err != nil {
			t.Fatal(err)
		}
		f, err := parseFailure(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprintf("%+v", f.Script), fmt.Sprintf("%+v", newScript(seed, b.loads)); got != want {
			t.Fatalf("seed %d:\n%s\n%s", seed, got, want)
		}
	}
}

package planner_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace"
	"millrace/bench/plan/workload"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
)

// TestPoolFillsSteps holds the goal for fill with carry: auto, in the worst of three histograms of real lengths.
// Documents move by less than three steps in the mean, and none further than it may. The delivered mixture stays close.
func TestPoolFillsSteps(t *testing.T) {
	for _, tt := range []struct {
		batch, steps int
		fill         uint64 // the least allowed, in millionths
	}{{16, 200, 999_000}, {64, 60, 999_700}, {128, 40, 999_700}, {512, 40, 999_900}} {
		for _, seqlen := range []uint32{2048, 8192} {
			for _, name := range []string{"pretrain", "longctx", "sft"} {
				t.Run(fmt.Sprintf("%d/%d/%s", tt.batch, seqlen, name), func(t *testing.T) {
					offers := workload.NewCorpus(openLengths(t, name), 100_000, 4)
					m := measure(t, workload.FourSources(), offers, seqlen, tt.batch, tt.steps)
					t.Log(m)
					if m.fill < tt.fill || m.moved > 3 || m.most > progress.PoolWaits || m.off > 1.5 || m.state > 4096 {
						t.Errorf("want a fill of %d ppm", tt.fill)
					}
				})
			}
		}
	}
}

// TestDeliveredMixtureIsClose: with carry: auto, every source has delivered its share at the end of every step, but for
// two sequences. Weights and lengths differ much between sources.
func TestDeliveredMixtureIsClose(t *testing.T) {
	many := make([]string, 64)
	for i := range many {
		many[i] = fmt.Sprint(1 + i*i)
	}
	pretrain := openLengths(t, "pretrain")
	for _, tt := range []struct {
		name    string
		weights []string
		lengths []*workload.Histogram // of each source; the last one of all further sources
	}{
		{"skewed", []string{"0.9", "0.07", "0.02", "0.01"}, []*workload.Histogram{pretrain}},
		{"many", many, []*workload.Histogram{pretrain}},
		{"short, long and whole sequences", workload.FourSources(), []*workload.Histogram{
			openLengths(t, "longctx"), evenLengths(t, 20, 400), openLengths(t, "sft"), evenLengths(t, 2048, 20480),
		}},
	} {
		for _, batch := range []int{16, 64, 512} {
			t.Run(fmt.Sprintf("%s/%d", tt.name, batch), func(t *testing.T) {
				offers := sourcesOf{}
				for i := range tt.weights {
					h := tt.lengths[min(i, len(tt.lengths)-1)]
					offers = append(offers, workload.NewCorpus(h, 20_000, len(tt.weights)))
				}
				m := measure(t, tt.weights, offers, 2048, batch, max(16*400/batch, 40))
				t.Log(m)
				if m.off > 2 {
					t.Errorf("a source is %.2f sequences from its target", m.off)
				}
			})
		}
	}
}

// sourcesOf offers a corpus for each source.
type sourcesOf []*workload.Corpus

func (s sourcesOf) Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	return s[source].Peek(source, ordinal)
}

func openLengths(t *testing.T, name string) *workload.Histogram {
	h, err := workload.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// evenLengths returns a histogram in which every length of a range is as frequent.
func evenLengths(t *testing.T, from, to uint32) *workload.Histogram {
	var text strings.Builder
	for length := from; length <= to; length++ {
		fmt.Fprintf(&text, "%d,1\n", length)
	}
	h, err := workload.Read("even", strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// measured describes the steps of a run.
type measured struct {
	fill  uint64  // mean, in millionths
	moved float64 // mean number of steps that a segment moved
	most  int     // the largest such number
	off   float64 // the largest distance of a source's delivered tokens from its target, in sequences
	waits float64 // mean number of waiting segments
	state int     // bytes of the largest state
}

func (m measured) String() string {
	return fmt.Sprintf(
		"fill %d ppm, moved by %.2f steps, at most %d; %.2f sequences off; %.0f wait; a state has %d bytes",
		m.fill, m.moved, m.most, m.off, m.waits, m.state)
}

// measure selects steps with carry: auto.
func measure(t *testing.T, weights []string, o planner.Offers, seqlen uint32, batch, steps int) (m measured) {
	spec, err := workload.Spec(seqlen, batch, weights...)
	if err != nil {
		t.Fatal(err)
	}
	spec.Carry = planner.AutoCarry
	selector, err := planner.NewSelector(spec, progress.New(len(spec.Sources)))
	if err != nil {
		t.Fatal(err)
	}
	sels, err := workload.Advance(selector, o, steps)
	if err != nil {
		t.Fatal(err)
	}
	segments, lag := 0, make([]float64, len(weights))
	for i := range sels {
		sel := &sels[i]
		checkStep(t, spec, sel)
		m.fill += sel.Stats.FillPPM
		m.moved += float64(sel.Stats.Moved)
		m.waits += float64(len(sel.After.Carried)) / float64(steps)
		segments += len(sel.Segments)
		m.most, m.state = max(m.most, sel.Stats.Most), max(m.state, len(sel.After.Compact()))
		for s, src := range sel.Stats.Sources {
			lag[s] += float64(src.Share)/mixing.One*float64(sel.Stats.Tokens) - float64(src.Tokens)
			m.off = max(m.off, lag[s]/float64(seqlen), -lag[s]/float64(seqlen))
		}
	}
	m.fill /= uint64(steps)
	m.moved /= float64(segments)
	return m
}

// TestMoreCarryFillsNoWorse: over random lengths, a run with a larger carry fills its steps as well, apart from a
// tenth of a percent where lengths fit together badly.
func TestMoreCarryFillsNoWorse(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 7))
	for round := range 16 {
		seqlen, batch := uint32(256)<<rng.IntN(5), 8<<rng.IntN(4)
		lengths := randomLengths(t, rng, seqlen)
		least, least4 := uint64(0), 0
		for _, carry := range []int{0, 4, 16, 64, 256, 512, planner.AutoCarry} {
			fill := fillOf(t, lengths, seqlen, batch, carry)
			if fill+1000 < least {
				t.Errorf(
					"round %d, %d sequences of %d: carry %d fills %d ppm, carry %d filled %d",
					round,
					batch,
					seqlen,
					carry,
					fill,
					least4,
					least,
				)
			}
			if fill > least {
				least, least4 = fill, carry
			}
		}
	}
}

// randomLengths returns a random histogram: a few peaks, or a range of lengths, with some longer than a sequence.
func randomLengths(t *testing.T, rng *rand.Rand, seqlen uint32) *workload.Histogram {
	var text strings.Builder
	from, to := 1+rng.Uint32N(seqlen/4), seqlen/4+rng.Uint32N(seqlen*5/4)
	peaks := 3 + rng.IntN(400)
	for range peaks {
		fmt.Fprintf(&text, "%d,%d\n", from+rng.Uint32N(to-from+1), 1+rng.IntN(1000))
	}
	h, err := workload.Read("random", strings.NewReader("length,count\n"+text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func fillOf(t *testing.T, lengths *workload.Histogram, seqlen uint32, batch, carry int) (ppm uint64) {
	spec, err := workload.Spec(seqlen, batch, workload.FourSources()...)
	if err != nil {
		t.Fatal(err)
	}
	spec.Carry = carry
	selector, err := planner.NewSelector(spec, progress.New(len(spec.Sources)))
	if err != nil {
		t.Fatal(err)
	}
	const steps = 25
	sels, err := workload.Advance(selector, workload.NewCorpus(lengths, 50_000, len(spec.Sources)), steps)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sels {
		ppm += sels[i].Stats.FillPPM
	}
	return ppm / steps
}

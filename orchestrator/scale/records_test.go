package scale

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// slowRecords is a run whose loaders make single records, which take seconds and are uneven. A loader turns to the
// source that is most behind. Ranks take tokens from the read-ahead, and wait once it is empty. Time goes in tenths of
// a second.
type slowRecords struct {
	*world
	seconds float64 // of a record, on average
	mean    float64 // tokens of a record
	fixed   bool    // a record takes as long, however many tokens it has
	ahead   float64 // most tokens that are read ahead

	docs  []float64
	doing []*record
}

type record struct {
	source       int
	tokens, left float64
}

// newSlowRecords returns a run of equal sources. Its ranks need the work of so many loaders.
func newSlowRecords(limits Limits, loaders float64, sources int, rng *rand.Rand) *slowRecords {
	in := needs(loaders)
	in.cost, in.rng = make([]float64, sources), rng
	w := newWorld(limits, in)
	r := &slowRecords{world: w, seconds: 3, docs: make([]float64, sources)}
	r.mean = w.asked * r.seconds / (loaders * w.lanes)
	w.there = limits.Max // the ranks begin when the read-ahead is full
	w.perStep, r.ahead = 2*w.asked, max(60*w.asked, 4*r.mean*float64(sources))
	w.asked = 0
	for range 1000 {
		r.tenth()
	}
	w.asked, w.there, r.doing = 1000, limits.Min, nil
	return r
}

// next returns another record of a source, with a tenth to four times the tokens of the mean.
func (r *slowRecords) next(source int) *record {
	tokens := r.mean * math.Exp(r.rng.NormFloat64()*0.8-0.32)
	tokens = min(max(tokens, r.mean/10), 4*r.mean)
	left := r.seconds
	if !r.fixed {
		left *= tokens / r.mean
	}
	return &record{source, tokens, left}
}

// coming returns the tokens of a source that are made or being made.
func (r *slowRecords) coming(source int) float64 {
	sum := r.made[source]
	for _, d := range r.doing {
		if d.source == source {
			sum += d.tokens
		}
	}
	return sum
}

// play plays some time.
func (r *slowRecords) play(d time.Duration) {
	for range int(d / time.Second) {
		r.now = r.now.Add(time.Second)
		for len(r.starting) > 0 && !r.starting[0].After(r.now) {
			r.starting = r.starting[1:]
			r.there++
		}
		for range 10 {
			r.tenth()
		}
		r.look(r.docs)
	}
}

// tenth plays a tenth of a second.
func (r *slowRecords) tenth() {
	most := (r.served + r.ahead) / float64(len(r.made))
	for len(r.doing) < r.there*int(r.lanes) {
		behind := 0
		for i := range r.made {
			if r.coming(i) < r.coming(behind) {
				behind = i
			}
		}
		if r.coming(behind) > most {
			break
		}
		r.doing = append(r.doing, r.next(behind))
	}
	for _, d := range r.doing {
		d.left -= 0.1
		r.busy[d.source] += 0.1
		if d.left <= 0 {
			r.made[d.source] += d.tokens
			r.docs[d.source]++
		}
	}
	r.doing = slices.DeleteFunc(r.doing, func(d *record) bool { return d.left <= 0 })
	there := slices.Min(r.made) * float64(len(r.made))
	takes := min(r.asked/10, max(there-r.served, 0))
	r.served += takes
	if r.asked > 0 {
		waited := 0.1 * (1 - takes/(r.asked/10))
		r.waited += waited
		r.lateWait += waited
	}
}

// TestFewSlowRecordsAskForNoMoreThanTheirWork: some seconds of records say little about the cost of a token. The number
// of loaders is that of the work all the same, and it rests.
func TestFewSlowRecordsAskForNoMoreThanTheirWork(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 0))
		loaders, sources := 0.2+1.8*rng.Float64(), 1+rng.IntN(16)
		r := newSlowRecords(Limits{1, 16}, loaders, sources, rng)
		r.fixed = seed%2 == 0
		most := loadersFor(1.3*loaders) + 1
		for minute := range 10 {
			r.play(time.Minute)
			if n := r.scaler.Wish().Loaders; n > most {
				t.Fatalf("seed %d: %d loaders after %d minutes for the work of %.1f: %v", seed, n, minute+1, loaders,
					r.moves)
			}
		}
		r.rest(time.Second)
		r.play(30 * time.Minute)
		if _, moves := r.rest(time.Second); len(moves) > 2 {
			t.Fatalf("seed %d: it does not rest with the work of %.1f of %d sources: %v", seed, loaders, sources, moves)
		}
	}
}

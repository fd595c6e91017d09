package scale

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a run in which loaders read and ranks consume, one second a turn. A loader does one second of work a second
// for each lane. Ranks wait if the loaders cannot follow.
type world struct {
	scaler *Scaler
	now    time.Time
	began  time.Time
	rng    *rand.Rand
	noise  float64 // every measure is off by up to this part

	lanes   float64
	ready   time.Duration // of a new loader
	asked   float64       // tokens a second that the ranks take if they never wait
	perStep float64       // tokens
	cost    []float64     // by source
	known   Costs         // before the run
	shares  func(step uint64) []float64
	helps   func(loaders float64) float64 // the work that so many loaders do, in loaders; nil: all of it

	there    int
	starting []time.Time
	served   float64
	waited   float64
	busy     []float64
	made     []float64
	moves    []move
	lateWait float64 // waits since the last call of rest
}

type move struct {
	at       time.Duration
	from, to int
	why      string
}

func newWorld(limits Limits, w world) *world {
	w.now = time.Unix(1000, 0)
	w.began = w.now
	if w.rng == nil {
		w.rng = rand.New(rand.NewPCG(1, 2))
	}
	w.busy, w.made = make([]float64, len(w.cost)), make([]float64, len(w.cost))
	if w.shares == nil {
		w.shares = func(uint64) []float64 {
			out := make([]float64, len(w.cost))
			for i := range out {
				out[i] = 1 / float64(len(out))
			}
			return out
		}
	}
	if w.helps == nil {
		w.helps = func(n float64) float64 { return n }
	}
	w.scaler = New(limits, w.shares, w.known)
	w.there = limits.Min
	return &w
}

func (w *world) step() uint64 { return uint64(w.served / w.perStep) }

func (w *world) off() float64 { return 1 + w.noise*(2*w.rng.Float64()-1) }

// run plays some time.
func (w *world) run(d time.Duration) {
	for range int(d / time.Second) {
		w.now = w.now.Add(time.Second)
		for len(w.starting) > 0 && !w.starting[0].After(w.now) {
			w.starting = w.starting[1:]
			w.there++
		}
		shares := w.shares(w.step())
		each := 0.0 // work of a token
		for i, s := range shares {
			each += s * w.cost[i]
		}
		asked := w.asked * w.off()
		speed := min(asked, w.helps(float64(w.there))*w.lanes/each)
		w.served += speed
		w.waited += 1 - speed/asked
		w.lateWait += 1 - speed/asked
		for i, s := range shares {
			w.busy[i] += speed * s * w.cost[i] * w.off() * float64(w.there) / w.helps(float64(w.there))
			w.made[i] += speed * s
		}
		docs := make([]float64, len(w.made)) // of 10 tokens each
		for i := range docs {
			docs[i] = w.made[i] / 10
		}
		w.look(docs)
	}
}

func (w *world) look(docs []float64) {
	var names []string
	for i := range w.cost {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	w.scaler.Observe(Sample{At: w.now, Step: w.step(), Served: uint64(float64(w.step()) * w.perStep), Waited: w.waited,
		Busy: slices.Clone(w.busy), Made: slices.Clone(w.made), Docs: slices.Clone(docs), Names: names,
		There: w.there, Lanes: w.lanes, Blamed: "s0"})
	wish, another := w.scaler.Decide()
	if !another {
		return
	}
	before := w.scaler.Wish().Loaders
	w.scaler.Take(wish)
	w.moves = append(w.moves, move{w.now.Sub(w.began), before, wish.Loaders, wish.Why})
	have := w.there + len(w.starting)
	for range wish.Loaders - have {
		w.starting = append(w.starting, w.now.Add(w.ready))
	}
	if wish.Loaders < have {
		w.starting, w.there = nil, min(w.there, wish.Loaders)
	}
}

// rest returns the part of the time in which ranks waited since the last call, and the moves.
func (w *world) rest(over time.Duration) (float64, []move) {
	part, moves := w.lateWait/over.Seconds(), w.moves
	w.lateWait, w.moves = 0, nil
	return part, moves
}

// needs returns a world whose ranks need the work of so many loaders.
func needs(loaders float64) world {
	return world{lanes: 2, ready: 10 * time.Second, asked: 1000, perStep: 100, cost: []float64{loaders * 2 / 1000}}
}

func TestAStepOfLoadIsFollowed(t *testing.T) {
	w := newWorld(Limits{1, 8}, needs(0.3))
	w.run(2 * time.Minute)
	if waited, moves := w.rest(2 * time.Minute); waited > 0 || len(moves) > 0 {
		t.Fatalf("an idle run moves: %v, waits %.2f", moves, waited)
	}
	w.cost[0] *= 10 // 3 loaders of work
	w.run(2 * time.Minute)
	_, moves := w.rest(2 * time.Minute)
	if w.there < 4 || w.there > 6 || !strings.Contains(moves[0].why, "source s0") {
		t.Fatalf("%d loaders for the work of 3: %v", w.there, moves)
	}
	w.run(time.Hour)
	if waited, moves := w.rest(time.Hour); waited > 0.001 || len(moves) > 1 {
		t.Fatalf("it does not rest: %v, waits %.3f", moves, waited)
	}
	w.cost[0] /= 10
	w.run(10 * time.Minute)
	if _, moves := w.rest(10 * time.Minute); w.there > 1 {
		t.Fatalf("%d loaders are left for the work of 0.3: %v", w.there, moves)
	}
}

// TestShrinkingIsSlow: a loader goes only after the time that its coming back would cost.
func TestShrinkingIsSlow(t *testing.T) {
	w := newWorld(Limits{1, 8}, needs(3))
	w.run(5 * time.Minute)
	w.cost[0] /= 10
	w.rest(time.Second)
	w.run(calm - time.Second)
	if _, moves := w.rest(calm); len(moves) > 0 {
		t.Fatalf("it shrank after less than %v: %v", calm, moves)
	}
}

// TestTheWayBackIsOfFewMoves: each move gives back half of the loaders at most, and waits for its payback.
func TestTheWayBackIsOfFewMoves(t *testing.T) {
	in := needs(5)
	in.ready = 21 * time.Second
	w := newWorld(Limits{1, 8}, in)
	w.run(5 * time.Minute)
	if w.there != 8 {
		t.Fatalf("%d loaders for the work of 5: %v", w.there, w.moves)
	}
	w.cost[0] /= 50
	w.rest(time.Second)
	w.run(5 * time.Minute)
	var to []int
	_, moves := w.rest(time.Second)
	for _, m := range moves {
		to = append(to, m.to)
	}
	if !slices.Equal(to, []int{4, 2, 1}) {
		t.Fatalf("the way back from 8 loaders: %v", moves)
	}
}

// TestAShortPauseKeepsTheLoaders: the work comes back before a move has paid back.
func TestAShortPauseKeepsTheLoaders(t *testing.T) {
	w := newWorld(Limits{1, 8}, needs(3))
	w.run(5 * time.Minute)
	w.rest(time.Second)
	for range 10 {
		w.cost[0] /= 10
		w.run(30 * time.Second)
		w.cost[0] *= 10
		w.run(time.Minute)
	}
	if _, moves := w.rest(time.Second); len(moves) > 0 {
		t.Fatalf("short pauses move loaders: %v", moves)
	}
}

// TestTheScheduleIsKnown: the loaders read before the mixture changes, so that no rank waits.
func TestTheScheduleIsKnown(t *testing.T) {
	in := needs(0.5)
	in.cost = []float64{in.cost[0], 10 * in.cost[0]}
	in.shares = func(step uint64) []float64 {
		if step < 3000 {
			return []float64{0.99, 0.01}
		}
		return []float64{0.5, 0.5}
	}
	w := newWorld(Limits{1, 8}, in)
	w.run(295 * time.Second) // 10 steps a second
	waited, moves := w.rest(295 * time.Second)
	if w.there < 4 || waited > 0 || len(moves) != 1 || !strings.Contains(moves[0].why, "from step 3") {
		t.Fatalf("%d loaders before the mixture needs the work of 2.75: %v, waits %.3f", w.there, moves, waited)
	}
	w.run(2 * time.Minute)
	if waited, moves = w.rest(2 * time.Minute); waited > 0 || len(moves) > 0 {
		t.Fatalf("the change was known, and ranks wait %.3f: %v", waited, moves)
	}
}

// TestADearSourceIsKnownBeforeItIsRead if the run has its cost. Without the cost, ranks wait.
func TestADearSourceIsKnownBeforeItIsRead(t *testing.T) {
	for _, isKnown := range []bool{true, false} {
		in := needs(0.5)
		in.cost = []float64{in.cost[0], 10 * in.cost[0]}
		if isKnown {
			in.known = in.cost
		}
		in.shares = func(step uint64) []float64 {
			if step < 3000 {
				return []float64{1, 0}
			}
			return []float64{0.5, 0.5}
		}
		w := newWorld(Limits{1, 8}, in)
		w.run(295 * time.Second) // 10 steps a second
		if early := w.there >= 4; early != isKnown {
			t.Fatalf("%d loaders before the mixture needs the work of 2.75: %v", w.there, w.moves)
		}
		w.run(2 * time.Minute)
		if waited, _ := w.rest(2 * time.Minute); waited > 0 == isKnown {
			t.Fatalf("the cost is known: %v, and ranks wait %.3f", isKnown, waited)
		}
	}
}

// TestAKnownNeedKeepsLoaders that would be idle for less than a move costs.
func TestAKnownNeedKeepsLoaders(t *testing.T) {
	in := needs(0.5)
	in.cost = []float64{in.cost[0], 10 * in.cost[0]}
	in.shares = func(step uint64) []float64 {
		if step < 1500 || step >= 2100 { // a pause of 60 s
			return []float64{0.5, 0.5}
		}
		return []float64{1, 0}
	}
	w := newWorld(Limits{1, 8}, in)
	w.run(140 * time.Second)
	before, _ := w.there, w.lateWait
	w.rest(time.Second)
	w.run(2 * time.Minute)
	if _, moves := w.rest(time.Second); len(moves) > 0 || w.there != before {
		t.Fatalf("a pause that is known to be short moves loaders: %v", moves)
	}
}

// TestLoadersThatDoNotHelpGo: the processors of the host are the bottleneck.
func TestLoadersThatDoNotHelpGo(t *testing.T) {
	in := needs(3)
	in.helps = func(n float64) float64 { return min(n, 2) }
	w := newWorld(Limits{1, 8}, in)
	w.run(10 * time.Minute)
	_, moves := w.rest(time.Second)
	if w.there != 2 || len(moves) > 4 || !strings.Contains(moves[len(moves)-1].why, "read no faster") {
		t.Fatalf("%d loaders where 2 do all that can be done: %v", w.there, moves)
	}
}

// TestAnEngineWithoutRoom is not asked for more and more, and the wish shrinks when the need is over.
func TestAnEngineWithoutRoom(t *testing.T) {
	in := needs(3)
	in.ready = 100 * time.Hour
	w := newWorld(Limits{1, 8}, in)
	w.run(10 * time.Minute)
	if _, moves := w.rest(time.Second); len(moves) != 1 {
		t.Fatalf("moves without effect: %v", moves)
	}
	w.cost[0] /= 10
	w.run(10 * time.Minute)
	if w.scaler.Wish().Loaders != 1 {
		t.Fatalf("the wish is %+v, and nothing is needed", w.scaler.Wish())
	}
}

// TestARampIsFollowed without waits of more than a moment.
func TestARampIsFollowed(t *testing.T) {
	w := newWorld(Limits{1, 8}, needs(0.3))
	for range 30 {
		w.cost[0] *= 1.1 // 5.2 loaders at last
		w.run(20 * time.Second)
	}
	waited, moves := w.rest(10 * time.Minute)
	if waited > 0.02 || w.there < 5 {
		t.Fatalf("ranks waited %.3f of the ramp with %d loaders: %v", waited, w.there, moves)
	}
}

// TestSlowStepsAreMeasuredOverSeveral: a step a 20 s is no change of load.
func TestSlowStepsAreMeasuredOverSeveral(t *testing.T) {
	in := needs(2)
	in.perStep = 20 * in.asked
	w := newWorld(Limits{1, 8}, in)
	w.run(10 * time.Minute)
	w.rest(time.Second)
	w.run(time.Hour)
	if waited, moves := w.rest(time.Hour); waited > 0.001 || len(moves) > 1 {
		t.Fatalf("it does not rest: %v, waits %.3f", moves, waited)
	}
}

// TestNoFlapping: under noise of any kind of load, the number comes to rest, and it lies within the limits at any time.
func TestNoFlapping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := needs(rapid.Float64Range(0.01, 12).Draw(t, "loaders of work"))
		in.noise = rapid.Float64Range(0, 0.2).Draw(t, "noise")
		in.ready = time.Duration(rapid.IntRange(1, 60).Draw(t, "ready")) * time.Second
		in.perStep = rapid.Float64Range(10, 30000).Draw(t, "tokens of a step")
		in.lanes = rapid.Float64Range(1, 8).Draw(t, "lanes")
		in.cost[0] *= in.lanes / 2
		in.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		least := rapid.IntRange(1, 3).Draw(t, "min")
		limits := Limits{least, least + rapid.IntRange(0, 8).Draw(t, "more")}
		w := newWorld(limits, in)
		for range 20 {
			w.run(time.Minute)
			if n := w.scaler.Wish().Loaders; n < limits.Min || n > limits.Max {
				t.Fatalf("%d loaders, the limits are %+v", n, limits)
			}
		}
		w.rest(time.Second)
		w.run(2 * time.Hour)
		waited, moves := w.rest(2 * time.Hour)
		if len(moves) > 1 {
			t.Fatalf("%d moves in two hours of steady load: %v", len(moves), moves)
		}
		if w.there < limits.Max && waited > hungry {
			t.Fatalf("ranks wait %.3f with %d loaders of at most %d", waited, w.there, limits.Max)
		}
	})
}

// TestAPlantedSlowSourceGetsLoadersAndGivesThemBack, at any slowness, within some minutes each way.
func TestAPlantedSlowSourceGetsLoadersAndGivesThemBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := needs(rapid.Float64Range(0.05, 0.5).Draw(t, "loaders of work"))
		in.cost = []float64{in.cost[0], in.cost[0], in.cost[0]}
		in.noise = rapid.Float64Range(0, 0.1).Draw(t, "noise")
		in.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		slow := rapid.Float64Range(8, 30).Draw(t, "times slower")
		w := newWorld(Limits{1, 16}, in)
		w.run(2 * time.Minute)
		w.cost[1] *= slow
		w.run(5 * time.Minute)
		w.rest(time.Second)
		w.run(time.Minute)
		if waited, moves := w.rest(time.Minute); waited > 0.01 {
			t.Fatalf("ranks still wait %.3f with %d loaders: %v", waited, w.there, moves)
		}
		w.cost[1] /= slow
		w.run(15 * time.Minute)
		if w.there > 1 {
			t.Fatalf("%d loaders are left", w.there)
		}
	})
}

func TestAnAttemptThatBeginsAnewForgetsTheMeasures(t *testing.T) {
	w := newWorld(Limits{1, 8}, needs(0.3))
	w.run(time.Minute)
	w.served, w.waited = 0, 0
	w.run(3 * time.Minute)
	if _, moves := w.rest(time.Second); len(moves) > 0 {
		t.Fatalf("it moves: %v", moves)
	}
}

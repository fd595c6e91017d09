package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"millrace/verify/sim/memnet"
)

// script holds the faults of a run. It follows from a seed. The file of a failed seed has the whole script.
type script struct {
	Seed     uint64         `json:"seed"`
	Workload int            `json:"workload"`
	Hosts    int            `json:"hosts,omitempty"`  // with an election in etcd; 0: one host without
	Fleet    int            `json:"fleet,omitempty"`  // loaders that read, run by an engine; 0: no engine
	Wishes   bool           `json:"wishes,omitempty"` // the orchestrator tells the engine their number
	Weather  memnet.Weather `json:"weather"`
	Phases   []phase        `json:"phases"`
	Faults   []fault        `json:"faults"`
}

// phase is one run of the trainers, between two starts.
type phase struct {
	Start string        `json:"start"`           // fresh, state, latest
	Back  int           `json:"back,omitempty"`  // with state: steps before the slowest rank
	Until int           `json:"until"`           // the ranks stop before this step
	Kill  int           `json:"kill,omitempty"`  // passes after which all ranks are killed; 0: never
	Pace  time.Duration `json:"pace,omitempty"`  // time of a step
	Save  bool          `json:"save,omitempty"`  // the trainers report saved checkpoints
	Other bool          `json:"other,omitempty"` // under the other topology of the workload
	Turn  []fault       `json:"turn,omitempty"`  // in the middle of the change of the topology, each after its Delay
}

// fault is injected after a number of passes of the trainers, or after a time without passes.
type fault struct {
	After int           `json:"after"`
	Delay time.Duration `json:"delay,omitempty"`
	Kind  string        `json:"kind"`
	At    string        `json:"at"`           // a slot
	To    string        `json:"to,omitempty"` // another
	For   time.Duration `json:"for,omitempty"`
	Size  int           `json:"size,omitempty"`
}

// The kinds of fault.
const (
	// crash is a kill -9. The disk keeps Size percent of the unsynced data, and the process restarts after For.
	crash = "crash"
	stop  = "stop"  // SIGTERM: the orchestrator ends in order, and the next begins
	leave = "leave" // SIGTERM: a loader hands over its stripes and exits
	// rotten makes a planned record go bad for all processes, or, with To, only for the process at At. The other
	// readers are killed. With For, a host without trainers is lost so long after it, and for so long.
	rotten     = "rot"
	vanish     = "vanish"     // a crash that other processes notice only after For
	freeze     = "freeze"     // SIGSTOP for For
	zombie     = "zombie"     // a loader is frozen for For, and another process takes its slot
	second     = "second"     // an orchestrator is frozen, and another is started beside it
	partition  = "partition"  // no bytes pass between At and To for For
	oneWay     = "one-way"    // no bytes pass from At to To for For
	reset      = "reset"      // the connections to At end at once
	cut        = "cut"        // the connections to At end in order
	jump       = "jump"       // the wall clock of At jumps by Size seconds
	late       = "late"       // timers of At are up to For late from now on
	syncDeath  = "sync-death" // the Size-th fsync from now fails: the process dies before it
	diskFull   = "disk-full"  // no room for For
	slowDisk   = "slow-disk"  // fsyncs take For for a second
	remix      = "mix"        // the mixture changes from a step that no trainer has reached; Size selects the change
	trainersGo = "trainers"   // the trainers are killed: see phase
)

// newScript draws the script of a seed. Seed 0 has no faults.
func newScript(seed uint64, all []*workload) *script {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := &script{Seed: seed, Workload: int(seed % uint64(len(all)))}
	w := all[s.Workload]
	s.Phases = phases(rng, w)
	if seed == 0 {
		return s
	}
	s.Weather = weather(rng)
	if s.Workload == manySources {
		s.Weather.Fuse *= 32 // otherwise no connection lasts until a process knows all sources
	}
	after := 1
	for range 1 + rng.IntN(6) {
		after += rng.IntN(12) // 0: two at once
		s.Faults = append(s.Faults, newFault(rng, w, after))
	}
	s.remix(rng)
	s.spread(w)
	s.scales(w)
	s.reshapes(w)
	s.heals()
	return s
}

// remix adds changes of the mixture to one script in four. A script with bad records gets none: masks are judged by the
// run without changes.
func (s *script) remix(rng *rand.Rand) {
	if rng.IntN(4) > 0 || slices.ContainsFunc(s.Faults, func(f fault) bool { return f.Kind == rotten }) {
		return
	}
	for range 1 + rng.IntN(3) {
		at := rng.IntN(len(s.Faults) + 1)
		f := fault{
			Kind:  remix,
			At:    orchestratorName,
			Size:  rng.IntN(1000),
			Delay: time.Duration(rng.IntN(5000)) * time.Microsecond,
		}
		if at > 0 {
			f.After = s.Faults[at-1].After
		}
		s.Faults = slices.Insert(s.Faults, at, f)
	}
}

func weather(rng *rand.Rand) memnet.Weather {
	var w memnet.Weather
	switch rng.IntN(4) {
	case 0: // one host
		w.Latency = 100 * time.Microsecond
	case 1:
		w.Latency, w.Jitter = 5*time.Millisecond, time.Duration(rng.IntN(10))*time.Millisecond
	case 2:
		w.Latency, w.Jitter = 50*time.Millisecond, time.Duration(rng.IntN(50))*time.Millisecond
	}
	switch rng.IntN(8) {
	case 0:
		w.Bytes = 64<<10 + rng.IntN(1<<20)
	case 1:
		w.Read = 64 + rng.IntN(4000)
	case 2:
		w.Fuse = 8<<10 + rng.IntN(64<<10)
	}
	return w
}

func phases(rng *rand.Rand, w *workload) []phase {
	var out []phase
	n := 1 + rng.IntN(3)
	for i := range n {
		p := phase{Start: "fresh", Until: int(w.steps), Save: rng.IntN(3) == 0}
		if rng.IntN(4) == 0 {
			p.Pace = time.Duration(1+rng.IntN(200)) * time.Millisecond
		}
		if i > 0 {
			p.Start = []string{"state", "state", "latest", "fresh"}[rng.IntN(4)]
			p.Back = rng.IntN(4)
		}
		if i < n-1 {
			p.Until = 2 + rng.IntN(int(w.steps)-3)
			if rng.IntN(2) == 0 {
				p.Kill = 1 + rng.IntN(3*p.Until*w.ranks)
			}
		}
		out = append(out, p)
	}
	return out
}

func newFault(rng *rand.Rand, w *workload, after int) fault {
	slots := w.slots(0, w.hosts)
	any := func() string { return slots[rng.IntN(len(slots))] }
	loader := func() string { return loaderName(rng.IntN(w.loaders)) }
	reader := func() string { return slots[1+rng.IntN(w.loaders+w.shadows)] }
	ms := func(most int) time.Duration { return time.Duration(1+rng.IntN(most)) * time.Millisecond }
	f := fault{After: after, Delay: time.Duration(rng.IntN(30_000)) * time.Microsecond, At: any()}
	switch rng.IntN(20) {
	case 0, 1, 2, 3:
		f.Kind, f.For, f.Size = crash, ms(300), []int{0, 100, rng.IntN(101)}[rng.IntN(3)]
	case 4:
		f.Kind, f.For, f.Size = vanish, ms(5000), rng.IntN(101)
	case 5:
		f.Kind, f.For = freeze, ms(3000)
	case 6:
		f.Kind, f.At, f.For = zombie, loader(), ms(2000)
	case 7:
		f.Kind, f.At, f.For = second, orchestratorName, ms(2000)
	case 8:
		f.Kind, f.At, f.To, f.For = partition, any(), any(), ms(3000)
	case 9:
		f.Kind, f.At, f.To, f.For = oneWay, any(), any(), ms(3000)
	case 10:
		f.Kind = reset
	case 11:
		f.Kind = cut
	case 12:
		f.Kind, f.Size = jump, rng.IntN(7200)-3600
	case 13:
		f.Kind, f.For = late, ms(200)
	case 14:
		f.Kind, f.At, f.Size = syncDeath, orchestratorName, 1+rng.IntN(8)
	case 15:
		f.Kind, f.At, f.For = []string{diskFull, slowDisk}[rng.IntN(2)], orchestratorName, ms(1500)
	case 16:
		f.Kind, f.At, f.For = stop, orchestratorName, 0
	case 17:
		f.Kind, f.At = leave, reader()
	case 18, 19:
		f.Kind, f.At, f.Size = rotten, reader(), rng.IntN(100)
		if rng.IntN(3) == 0 {
			f.To = f.At
		}
	}
	return f
}

package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"millrace/orchestrator"
	"millrace/proto"
)

// heal makes bad records readable: those that went bad during the run, and those of the files that are quarantined. All
// readers are killed, so that they read the records again.
const heal = "heal"

// healedLength is the number of tokens of a record that was bad in its file.
const healedLength = 5

// heals gives one script in three a repair, or more in scripts with records that go bad. A script whose mixture changes
// gets none: the documents of its later steps are judged by each other only. Its randomness is its own, so the other
// scripts stay as they were.
func (s *script) heals() {
	rng := rand.New(rand.NewPCG(s.Seed, 10))
	is := func(kind string) func(fault) bool { return func(f fault) bool { return f.Kind == kind } }
	rots := slices.IndexFunc(s.Faults, is(rotten))
	if slices.ContainsFunc(s.Faults, is(remix)) || rng.IntN(3) > 0 && rots < 0 {
		return
	}
	at := rots + 1 + rng.IntN(len(s.Faults)-rots)
	f := fault{Kind: heal, At: orchestratorName, Delay: time.Duration(rng.IntN(300)) * time.Millisecond}
	if at > 0 {
		f.After = s.Faults[at-1].After
	}
	if rng.IntN(2) == 0 {
		f.After += rng.IntN(40) // mostly in a later phase
	}
	s.Faults = slices.Insert(s.Faults, at, f)
}

// heal repairs the bad records that may not change the content of a step. A quarantined record keeps its ordinal out of
// the plans, and the run without faults reaches it once. p is the orchestrator.
func (w *world) heal(p *process) {
	quarantined := w.quarantined(p)
	w.rot.mu.Lock()
	healed, before := w.rot.healed, len(w.rot.healed)
	for record := range w.rot.bad {
		healed[record] = true
	}
	if len(healed) > before {
		w.saw("a record healed")
	}
	before = len(healed)
	for _, q := range quarantined {
		if record := q.Source + "/" + q.Id; w.lasts(q.Source) && !w.rot.wentBad(record) {
			healed[record] = true
		}
	}
	if len(healed) > before {
		w.saw("a quarantined record healed")
	}
	w.rot.mu.Unlock()
	w.killReaders(nil)
}

// quarantined lists the newest quarantined records. They are durable.
func (w *world) quarantined(p *process) []*proto.Quarantine {
	o := p.orchestrator.Load()
	if o == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answered)
	defer cancel()
	status, err := orchestrator.NewServer(o).Status(ctx, &proto.StatusRequest{})
	if err != nil {
		return nil
	}
	return status.Recent
}

// lasts reports whether the run without faults ends well within the first epoch of a source.
func (w *world) lasts(source string) bool {
	for record := range w.documents {
		if strings.HasPrefix(record, source+"/") {
			return true
		}
	}
	return false
}

// killReaders kills all loaders and shadows but one.
func (w *world) killReaders(but *process) {
	for _, s := range w.slots {
		if p := s.process(); p != nil && p != but &&
			(strings.HasPrefix(s.name, "loader") || strings.HasPrefix(s.name, shadowName)) {
			p.kill(again, 0)
		}
	}
}

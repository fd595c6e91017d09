package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"millrace"
	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/internal/event"
	"millrace/orchestrator"
	"millrace/orchestrator/facts"
	"millrace/proto"
)

// settles is the time in which a leader notices that all roles of all hosts have ended, and commits that to the copies.
const settles = 2 * leaseTime

// judgeJournal stops the orchestrator, and compares the states that its journal restores before and after the stop.
// Before, the journal has the newest snapshot and later records; after, only the last snapshot.
func (w *world) judgeJournal(stop func()) {
	if w.etcd != nil {
		time.Sleep(settles)
	}
	synctest.Wait()
	leader := w.newestDisk()
	before := disktest.Crash(leader.take(), 0, 0) // only synced data
	stop()
	if w.verdict.Violated != "" {
		return
	}
	was, _ := w.restore(before)
	is, store := w.restore(w.newestDisk().take())
	if w.newestDisk() != leader { // another host was elected when the leader ended: it took a term
		w.same(withoutTerm(was), withoutTerm(is))
	} else {
		w.same(was, is)
	}
	if store == nil || w.verdict.Violated != "" {
		return
	}
	if !store.OK() {
		w.fail("the journal verifies", "%s", strings.Join(store.Problems, "; "))
	}
	if w.script.Seed%4 != 0 { // the rest costs as much as all other checks at the end
		return
	}
	again, _ := w.restore(w.reopened())
	w.same(withoutTerm(is), withoutTerm(again)) // another orchestrator took a term
}

// withoutTerm returns a restored state without its first part, the term.
func withoutTerm(state []string) []string { return state[min(1, len(state)):] }

// same compares two restored states.
func (w *world) same(was, is []string) {
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			w.fail("the journal restores to the same state", "before its end %.300s, after it %.300s", was[i], is[i])
		}
	}
}

// reopened starts and stops another orchestrator, which only takes a snapshot, and returns the disk.
func (w *world) reopened() *disktest.Disk {
	disk := w.newestDisk().take()
	store, err := checkpoint.Open(checkpoint.Config{Dir: journalDir, CreatedBy: "sim", Disk: disk})
	if err != nil {
		w.fail("the journal opens", "%v", err)
		return disk
	}
	config := w.load.config
	config.Up = "another"
	o, err := orchestrator.New(context.Background(), config, orchestrator.Options{Store: store, Lines: io.Discard})
	if err == nil {
		ended, end := context.WithCancel(context.Background())
		end()
		err = o.Run(ended)
	}
	if err = errors.Join(err, store.Close()); err != nil {
		w.fail("processes stop in order", "an orchestrator with nothing to do: %v", err)
	}
	return disk
}

// changes returns the changes of the mixture, whether the state has them or the ledger.
func (w *world) changes(s *facts.State) (all []*proto.MixChange) {
	for step := range s.Next + 100 {
		list, err := s.ChangesAt(nil, s.Attempt.GetAttempt()+1, step)
		if err != nil {
			w.fail("the journal restores", "the changes at step %d: %v", step, err)
			return nil
		}
		all = append(all, list...)
	}
	return all
}

// restore reads a disk like the next orchestrator.
func (w *world) restore(disk *disktest.Disk) (state []string, report *checkpoint.Report) {
	store, err := checkpoint.Open(checkpoint.Config{Dir: journalDir, CreatedBy: "sim", Disk: disk})
	if err != nil {
		w.fail("the journal opens", "%v", err)
		return nil, nil
	}
	s, _, err := facts.Read(store, millrace.Train, w.load.config.Spec)
	if err != nil {
		w.fail("the journal restores", "%v", err)
	} else {
		w.promotions(s)
		if n := len(s.Through); w.verdict.Violated == "" && s.Ended != nil && n < w.shape.ranks {
			w.fail("the journal knows the ranks that took the last step",
				"%d of %d ranks: the run would wait for others that do not come back", n, w.shape.ranks)
		}
		if s.Attempt != nil { // a snapshot keeps only the state at the watermark, which is Base
			s.Attempt.State = nil
		}
		for _, part := range []any{
			s.Term, s.AssignTerm, s.Attempt, s.Base, s.Watermark, s.Next, s.Sealed, s.Ended, s.Through, s.Quarantined,
			s.Recent, s.Saved, s.HasSaved, s.Manifests, s.Identity, s.QuarantinedBelow, s.Masks, w.changes(s),
			s.Consumed,
			s.Chain,
			slices.Sorted(maps.Values(holders(s))),
		} {
			text, err := json.Marshal(part)
			if err != nil {
				w.fail("the journal restores", "%v", err)
			}
			state = append(state, string(text))
		}
	}
	r, err := store.Verify()
	if err != nil {
		w.fail("the journal verifies", "%v", err)
	}
	if err := store.Close(); err != nil {
		w.fail("the journal closes", "%v", err)
	}
	return state, &r
}

// holders returns the loader of each stripe according to the journal.
func holders(s *facts.State) map[string]string {
	out := map[string]string{}
	for key, h := range s.Holders {
		out[fmt.Sprint(key)] = fmt.Sprintf("%v: %v", key, h)
	}
	return out
}

// judgeHistory checks that every rank has each step up to the end once. A step that was taken again in a later attempt
// counts once.
func (w *world) judgeHistory() {
	if w.verdict.Violated != "" {
		return
	}
	for _, x := range w.trainers {
		for step := range w.load.steps {
			if !x.has(step) {
				w.fail("every step is delivered", "rank %d has not seen step %d", x.rank, step)
			}
		}
		if x.step != w.load.steps || len(x.got) > int(w.load.steps) {
			w.fail("every step is delivered", "rank %d ends at step %d with %d steps", x.rank, x.step, len(x.got))
		}
		w.verdict.Steps += len(x.got)
	}
}

// witness reads a loader's event records. A loader answers only under the term of its stripe.
type witness struct {
	w     *world
	p     *process
	mu    sync.Mutex
	holds map[string]event.Record // by stripe, the newest order to read it
}

// Write implements io.Writer. Each call is a record.
func (e *witness) Write(line []byte) (int, error) {
	var r event.Record
	if err := json.Unmarshal(line, &r); err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch held := e.holds[r.Key]; {
	case r.Event == "reading":
		if r.Term < held.Term {
			e.w.fail("terms never go down", "%s, life %d: stripe %s is read under term %d after %d", e.p.slot, e.p.life,
				r.Key, r.Term, held.Term)
		}
		e.holds[r.Key] = r
	case r.Event == "fetch" && r.Term != held.Term && r.Nanos > held.Nanos: // at one moment, both orders are right
		e.w.fail("no request is answered under a term that is over",
			"%s, life %d: stripe %s is held by term %d, and was answered under %d", e.p.slot, e.p.life, r.Key,
			held.Term, r.Term)
	}
	return len(line), nil
}

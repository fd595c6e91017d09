package sim

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"millrace"
	"millrace/checkpoint"
	"millrace/orchestrator/facts"
	"millrace/sidecar"
)

// document is the delivery of a record that the run without faults reaches once.
type document struct {
	last  millrace.Step // with a piece of it
	whole bool          // its end was delivered
}

// piece is one segment of a rank's batch.
type piece struct {
	of     string // the record
	sum    string // of its tokens
	masked bool
}

// rot makes records go bad on disk during the run. It takes records that are planned already, so that later steps do
// not change.
type rot struct {
	mu     sync.Mutex
	armed  *fault              // injected at the next plan with a record that may go bad
	bad    map[string]*process // by record, the process that cannot read it; nil: no process can
	healed map[string]bool     // by record, whether all processes can read it again
}

// recordName returns the name of a record in plans.
func recordName(source string, shard, record any) string {
	return fmt.Sprintf("%s/%v.jsonl#%v", source, shard, record)
}

// reads reports whether a process can read a record, which may be bad in its file.
func (r *rot) reads(p *process, record string, bad bool) bool {
	if r == nil {
		return !bad
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.healed[record] {
		return true
	}
	who, rotten := r.bad[record]
	return !bad && (!rotten || who != nil && who != p)
}

// has reports whether a record went bad, even if it has healed.
func (r *rot) has(record string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wentBad(record)
}

// wentBad is has for a caller that holds the lock.
func (r *rot) wentBad(record string) bool {
	_, bad := r.bad[record]
	return bad
}

// know stores the documents of a step of the run without faults. Each rank calls it, because a plan may have the part
// of one host alone.
func (w *world) know(p *sidecar.StepPlan) {
	w.rot.mu.Lock()
	defer w.rot.mu.Unlock()
	for i := range p.Assignments {
		a := &p.Assignments[i]
		name := recordName(p.Sources[a.Source].Name, a.ID.Shard, a.ID.Record)
		d := w.documents[name]
		if d == nil {
			d = &document{}
			w.documents[name] = d
		}
		d.last, d.whole = max(d.last, p.Step), d.whole || !a.More
	}
}

// ahead is the most documents of a source that the last step may have examined and left.
const ahead = 16

// settle forgets the records that may be drawn again, also for a step that no rank reaches. These are the records of
// sources that are not well within their first epoch at the end of the run without faults.
func (w *world) settle() error {
	store, err := checkpoint.Open(checkpoint.Config{Dir: journalDir, CreatedBy: "sim", Disk: w.disk.take()})
	if err != nil {
		return err
	}
	defer store.Close()
	_, at, err := facts.ReadCounters(store, millrace.Train)
	if err != nil || at.Step != w.load.steps || at.Done.Steps > 0 {
		return errors.Join(err, fmt.Errorf("it stands at step %s, %d steps into a window", at.Step, at.Done.Steps))
	}
	for i, src := range at.Sources {
		if int(src.Ordinal)+ahead > w.load.records[i] {
			maps.DeleteFunc(w.documents,
				func(record string, _ *document) bool { return strings.HasPrefix(record, name(i)+"/") })
		}
	}
	return nil
}

// decay makes a record of a plan go bad if a fault is due. No other plan asks for the record. It goes bad for all
// processes or for one. decay kills all other processes that may hold the record, so that it is read again.
func (w *world) decay(p *sidecar.StepPlan) {
	who, f := w.spoil(p)
	if f == nil {
		return
	}
	w.killReaders(who)
	if f.For > 0 {
		w.group.Go(func() {
			if h := w.withoutTrainers(f.Size); rest(w.over, f.For) && h != nil {
				w.saw("a host was lost after a record")
				w.lose(h, f)
			}
		})
	}
}

// spoil makes a record of a plan go bad for a fault that is due, and returns the process that alone cannot read it.
func (w *world) spoil(p *sidecar.StepPlan) (who *process, f *fault) {
	w.rot.mu.Lock()
	defer w.rot.mu.Unlock()
	f = w.rot.armed
	if f == nil || w.golden == nil {
		return nil, nil
	}
	var names []string
	for i := range p.Assignments {
		a := &p.Assignments[i]
		name := recordName(p.Sources[a.Source].Name, a.ID.Shard, a.ID.Record)
		if d := w.documents[name]; d != nil && d.whole && d.last <= p.Step && a.Length > 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	w.rot.armed = nil
	if f.To != "" {
		who = w.slot(f.At).process()
	}
	record := names[f.Size%len(names)]
	w.rot.bad[record] = who
	delete(w.rot.healed, record)
	return who, f
}

// pieces returns a step's batch of one rank, segment by segment.
func (x *trainer) pieces(p *sidecar.StepPlan, payload sidecar.Payload) (out []piece, masked bool, err error) {
	for micro := range p.Microbatches {
		tokens, err := payload.Tokens(x.part(), micro)
		if err != nil {
			return nil, false, err
		}
		hidden := payload.Masked(x.part(), micro)
		for i, a := range p.Part(x.part(), micro) {
			s := piece{
				of:     recordName(p.Sources[a.Source].Name, a.ID.Shard, a.ID.Record),
				masked: hidden != nil && hidden[i],
			}
			if s.sum = fmt.Sprintf("%d/%d/%d %v", micro, a.Row, a.Start, tokens[i].IDs()); s.masked {
				s.sum, masked = "", true
			}
			out = append(out, s)
		}
	}
	return out, masked, nil
}

// judge compares a batch with masked segments with the batch of the run without faults. Only bad records are masked,
// and they stay masked.
func (x *trainer) judge(p *sidecar.StepPlan, got []piece) error {
	want, before := x.w.whole[x.rank][p.Step], x.pieced[p.Step]
	if len(got) != len(want) {
		return fmt.Errorf("step %d of attempt %d has %d segments, without faults it has %d", p.Step, p.Attempt,
			len(got), len(want))
	}
	for i, s := range got {
		switch {
		case s.of != want[i].of || !s.masked && s.sum != want[i].sum:
			return fmt.Errorf("step %d of attempt %d: segment %d of %s differs from that of a run without faults",
				p.Step, p.Attempt, i, s.of)
		case s.masked && !x.w.rot.has(s.of):
			return fmt.Errorf("step %d of attempt %d: segment %d of %s is masked, and its record can be read", p.Step,
				p.Attempt, i, s.of)
		case before != nil && before[i].masked && !s.masked:
			return fmt.Errorf("step %d of attempt %d: segment %d of %s is no longer masked", p.Step, p.Attempt,
				i, s.of)
		}
	}
	return nil
}

package sidecar

import (
	"fmt"

	"millrace"
)

// delivery is the state machine of one connection. It answers each event with actions, and has no side effects.
//
//	greeting ─hello─▶ joining ─begun─▶ serving ─(ended, all committed)─▶ over
//	                     └──refused──────┴──failed / broken──▶ over
type delivery struct {
	rank  millrace.Rank
	phase phase
	start millrace.StartKind
	begin Begin
	// The client can map memory that it can only read.
	readOnly bool
	// The next batch to push. All batches below it were pushed on this connection.
	step       millrace.Step
	microbatch uint32
	committed  millrace.Step // the trainer has committed the steps below it
	sent       millrace.Step // upstream has noted the commits of the steps below it
	end        millrace.Step // if ended is set: the first step that the run does not have
	ended      bool
}

type phase uint8

const (
	greeting phase = iota
	joining
	serving
	over
)

// These are the events of a connection.
type (
	event     any
	helloed   struct{ start Start }
	begun     struct{ begin Begin }
	refused   struct{ err error }
	built     struct{ batch filled }
	noMore    struct{ end millrace.Step } // the run ends before step end
	failed    struct{ err error }
	forwarded struct{ below millrace.Step } // upstream has safely noted the commits of all steps below
	received  struct{ header }              // RELEASE, COMMIT, CHECKPOINT_SAVED, WAIT
	measured  struct{ report Report }       // REPORT
	malformed struct{ err error }
	alerted   struct{ alerts []Alert } // the list of alerts has changed
	outranked struct{ err error }      // a client that held the claim before continues
)

// These are the actions that answer events.
type (
	action  any
	join    struct{ start Start }
	feed    struct{ begin Begin }
	send    struct{ message }
	push    struct{ batch filled }
	release struct {
		ring, frame uint32
		generation  uint64
	}
	commit struct {
		step   millrace.Step
		header header // of the client's COMMIT; the zero value: none
	}
	saved         struct{ step millrace.Step }
	forwardReport struct{ report Report }
	status        struct{ header }
	hangUp        struct{} // after the client has read the messages
)

// on takes an event and returns the actions that answer it, in order.
func (d *delivery) on(e event) []action {
	if d.phase == over {
		return d.afterwards(e)
	}
	switch e := e.(type) {
	case helloed:
		d.phase, d.start, d.readOnly = joining, e.start.Kind, e.start.ReadOnly
		return []action{join(e)}
	case begun:
		return d.begun(e.begin)
	case refused:
		return d.fail(errStart, e.err)
	case built:
		return d.built(e.batch)
	case noMore:
		d.end, d.ended = e.end, true
		return d.finish()
	case failed:
		return d.fail(errRun, e.err)
	case forwarded:
		d.sent = max(d.sent, e.below)
		return d.finish()
	case received:
		return d.received(e.header)
	case measured:
		if d.phase == serving {
			return []action{forwardReport(e)}
		}
	case alerted:
		return d.alerted(e.alerts)
	case outranked:
		if d.phase == joining && d.start != millrace.StartContinue {
			return d.fail(errBusy, e.err)
		}
	case malformed:
		return d.fail(errProtocol, e.err)
	}
	return nil
}

func (d *delivery) begun(b Begin) []action {
	d.phase, d.begin = serving, b
	d.step, d.microbatch = b.Step, b.Microbatch
	d.committed, d.sent = b.Step, b.Step
	m, err := beginMessage(d.rank, b)
	if err != nil {
		return d.fail(errRun, err)
	}
	actions := []action{send{m}, feed{b}}
	if d.start == millrace.StartContinue && b.Step > 0 {
		// A client that continues at a step has consumed all earlier steps. The lost sidecar may not have reported
		// this.
		d.sent--
		actions = append(actions, commit{step: b.Step - 1})
	}
	return actions
}

// alerted passes on the list of alerts. Only clients that have begun receive it.
func (d *delivery) alerted(alerts []Alert) []action {
	m, err := alertsMessage(alerts)
	if err != nil {
		return d.fail(errRun, err)
	}
	return []action{send{m}}
}

func (d *delivery) built(b filled) []action {
	if b.slot.Step != d.step || b.slot.Microbatch != d.microbatch {
		return d.fail(errRun, millrace.Errorf(millrace.ErrMismatch, "batch %s was built, but %d/%s/%d/%d comes next",
			b.slot, d.begin.Attempt, d.step, d.rank, d.microbatch))
	}
	d.microbatch++
	if d.microbatch == b.microbatches {
		d.step, d.microbatch = d.step+1, 0
	}
	return []action{push{b}}
}

func (d *delivery) received(h header) []action {
	switch h.kind {
	case msgRelease:
		return []action{release{h.ring, h.frame, h.generation}}
	case msgCommit:
		return d.commit(h)
	case msgSaved:
		if d.phase == serving {
			return []action{saved{h.step}}
		}
		return nil
	case msgWait:
		return []action{status{h}}
	}
	return d.fail(errProtocol, fmt.Errorf("a client cannot send a message of type %d", h.kind))
}

func (d *delivery) commit(h header) []action {
	if d.phase != serving || h.attempt != d.begin.Attempt || h.step >= d.step {
		return d.fail(errProtocol,
			fmt.Errorf("commit step %s of attempt %d: not all of its batches were delivered", h.step, h.attempt))
	}
	if h.step < d.committed {
		return nil
	}
	d.committed = h.step + 1
	return []action{commit{h.step, h}}
}

// finish ends the run for this rank after upstream has noted that the last step is consumed.
func (d *delivery) finish() []action {
	if !d.ended || d.sent < d.end {
		return nil
	}
	d.phase = over
	return []action{d.endMessage()}
}

func (d *delivery) endMessage() send {
	return send{message{header: header{kind: msgEnd, attempt: d.begin.Attempt, step: d.end}}}
}

func (d *delivery) fail(kind errorKind, err error) []action {
	d.phase = over
	return []action{send{errorMessage(kind, err.Error())}, hangUp{}}
}

// afterwards handles events after the end of the run. The connection stays open until the trainer closes it, so that
// the trainer can report its last checkpoint.
func (d *delivery) afterwards(e event) []action {
	r, ok := e.(received)
	if !ok {
		return nil
	}
	switch r.kind {
	case msgRelease:
		return []action{release{r.ring, r.frame, r.generation}}
	case msgSaved:
		return []action{saved{r.step}}
	case msgWait: // an interrupt of the client may have lost END
		if d.ended {
			return []action{d.endMessage()}
		}
	}
	return nil
}

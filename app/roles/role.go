// Package roles runs the processes that `millrace up` starts: the orchestrator, the loaders, their shadows and the
// sidecar.
package roles

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync/atomic"

	"millrace"
	"millrace/app/supervisor"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
	"millrace/orchestrator/roster"
)

// Process is one process of a run, as up starts it.
type Process struct {
	Name    string // unique in the run
	RunDir  string
	Ranks   int // trainer ranks of this host
	World   int // trainer ranks of the run
	TP      int // of a sidecar; 0 here, in CP and in PP: as in the mixture file
	CP, PP  int
	Version string // of this program
	Users   []uint // beside this process's, whose trainers the sidecar serves
}

// role is a process that is attached to its supervisor.
type role struct {
	Process
	*surroundings
	streams []*stream // the first is the stream `train`
	life    *supervisor.Life
	fail    *failpoint.Set
	events  *event.Log
	log     *slog.Logger
	leads   bool         // this orchestrator plans the run
	others  net.Listener // of a candidate whose port the kernel chose, for other hosts; nil: it listens when it leads

	collector collector
}

// start attaches to the supervisor and reads the run's configuration. The caller calls stop.
func (p Process) start(ctx context.Context) (_ *role, _ context.Context, stop func(), err error) {
	life, err := supervisor.Attach(p.RunDir)
	if err != nil {
		return nil, nil, nil, err
	}
	r := &role{Process: p, life: life, log: NewLogger(p.Name)}
	if r.events, r.fail, err = Watch(os.Getenv(EnvEvents), p.Name); err != nil {
		return nil, nil, nil, err
	}
	if r.streams, err = openStreams(p.RunDir, r.events); err != nil {
		return nil, nil, nil, err
	}
	if r.surroundings, err = openSurroundings(p.RunDir, r.log); err != nil {
		return nil, nil, nil, err
	}
	profiled, err := profile(os.Getenv(envCPU), p.Name)
	if err != nil {
		return nil, nil, nil, err
	}
	r.collector.quietly() // a loader sets another target
	started := event.Weigh("start")
	r.events.Write(started)
	ctx, leave := life.Context(ctx)
	go r.collector.run(ctx) // ends with ctx
	stop = func() {
		profiled()
		r.surroundings.close()
		if r.events != nil {
			event.Settle(seam.System{}, started)
		}
		r.events.Write(event.Weigh("exit"))
		r.events.Close()
		leave()
	}
	return r, ctx, stop, nil
}

// terms returns a function that reports the role's term in a stream to the supervisor. The supervisor knows the terms
// of the stream `train`.
func (r *role) terms(s *stream) func(millrace.Term) {
	if s.isFurther() {
		return func(millrace.Term) {}
	}
	return r.term
}

func (r *role) term(t millrace.Term) {
	if err := r.life.ReportTerm(t); err != nil {
		r.log.Warn("cannot report the term to the supervisor", "error", err)
	}
}

// lacks reports the thing that the role waits for; "": nothing.
func (r *role) lacks(what string) {
	if err := r.life.ReportLacks(what); err != nil {
		r.log.Warn("cannot report to the supervisor that this role waits", "error", err)
	}
}

// fenced reports a fenced process to the supervisor, which starts another one in its place.
func (r *role) fenced(f roster.Process) {
	if err := r.life.ReportFenced(f.Name, f.Pid); err != nil {
		r.log.Warn("cannot report a fenced process to the supervisor", "name", f.Name, "pid", f.Pid, "error", err)
	}
}

// readyAfter returns a function that reports that the role serves, when it was called once for each stream.
func (r *role) readyAfter() func() {
	var missing atomic.Int32
	missing.Store(int32(len(r.streams)))
	return func() {
		if missing.Add(-1) == 0 {
			r.ready()
		}
	}
}

// ready reports that the role serves. A report that fails is no error: the lifeline ends this process if the supervisor
// is gone.
func (r *role) ready() {
	r.events.Write(event.Weigh("ready"))
	if err := r.life.ReportReady(); err != nil {
		r.log.Warn("cannot report to the supervisor that this role is ready", "error", err)
	}
}

package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"millrace/internal/failpoint"
	"millrace/internal/seam"
)

// Config is what to run and where.
type Config struct {
	RunDir   string                    // made where it does not exist; locked while Run lasts
	Children []Child                   // in starting order; roles stop in the reverse order
	Program  []string                  // executes this program, arguments excluded; by default the file that it was started from
	Final    func(Child, Exit) Verdict // judges an exit; nil restarts everything
	Prepare  func() error              // called once RuntimeDir is there and before the first child; may be nil
	OnReady  func()                    // called once, when all children are running for the first time; may be nil
	Fail     *failpoint.Set            // failpoints of the process; nil for none
	Stderr   io.Writer                 // children's output and notices, whole lines; os.Stderr by default
	Clock    seam.Clock                // seam.System by default
	// StopGrace is the time from asking the children to leave until they are killed; 5 s by default.
	StopGrace time.Duration
}

const defaultGrace = 5 * time.Second

func (c Config) withDefaults() Config {
	if len(c.Program) == 0 {
		c.Program = []string{self}
	}
	if c.Final == nil {
		c.Final = func(Child, Exit) Verdict { return Restart }
	}
	if c.Prepare == nil {
		c.Prepare = func() error { return nil }
	}
	if c.OnReady == nil {
		c.OnReady = func() {}
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	if c.Clock == nil {
		c.Clock = seam.System{}
	}
	if c.StopGrace == 0 {
		c.StopGrace = defaultGrace
	}
	return c
}

// run is the shell: it turns processes, signals and time into events and performs the machine's actions. One goroutine owns it.
type run struct {
	cfg       Config
	machine   *machine
	around    *surroundings
	events    chan event
	processes map[int]*process // by pid, until their exit has been told
	followers sync.WaitGroup
	refrains  []refrain // by child, while something lacks
	wrote     string    // roles.json as it stands
	unwritten string    // why it could not be written, as the user was told
}

// Run starts all children and keeps them running until a verdict, the context, SIGINT, SIGTERM or SIGHUP ends the run; a second
// signal kills at once. When it returns no child is left. The error is ErrInUse where another supervisor has the run directory, a
// *FailedError where a child brought the run down, and nil with the results Stopped and Finished.
func Run(ctx context.Context, cfg Config) (Result, error) {
	cfg = cfg.withDefaults()
	lock, err := lockDir(cfg.RunDir, cfg.Clock, cfg.Stderr)
	if err != nil {
		return Failed, err
	}
	defer lock.Close()
	cfg.Fail.Hit("supervisor/prepare/before")
	if err := makeRuntime(cfg.RunDir); err != nil {
		return Failed, err
	}
	if err := cfg.Prepare(); err != nil {
		return Failed, errors.Join(err, cleanRuntime(cfg.RunDir))
	}
	cfg.Fail.Hit("supervisor/prepare/after")
	lifeline, alive, err := os.Pipe()
	if err != nil {
		return Failed, errors.Join(fmt.Errorf("make lifeline: %w", err), cleanRuntime(cfg.RunDir))
	}
	r := &run{
		cfg:       cfg,
		machine:   newMachine(cfg.Children, cfg.Final, cfg.StopGrace),
		around:    &surroundings{cfg.Program, cfg.RunDir, &syncWriter{w: cfg.Stderr}, lock, lifeline},
		events:    make(chan event),
		processes: map[int]*process{},
		refrains:  make([]refrain, len(cfg.Children)),
	}
	r.loop(ctx)
	r.followers.Wait()
	cfg.Fail.Hit("supervisor/ended")
	lifeline.Close()
	alive.Close() // held open until here: its end is the children's sign to flee
	return r.machine.result, errors.Join(r.machine.err, cleanRuntime(cfg.RunDir))
}

// loop feeds the machine until it is done.
func (r *run) loop(ctx context.Context) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, stopSignals()...)
	defer signal.Stop(signals)

	r.feed(evBegin{})
	stop, asked := ctx.Done(), false
	for !r.machine.isDone() {
		select {
		case ev := <-r.events:
			if _, over := ev.(evExited); over {
				r.cfg.Fail.Hit("supervisor/exited")
			}
			r.feed(ev)
		case <-stop:
			stop = nil
			r.feed(evStop{})
		case <-signals:
			if asked {
				r.feed(evKill{})
			} else {
				r.feed(evStop{})
			}
			asked = true
		case <-r.timer():
			r.feed(evTick{})
		}
	}
}

// stopSignals leaves SIGHUP to nohup.
func stopSignals() []os.Signal {
	out := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		out = append(out, syscall.SIGHUP)
	}
	return out
}

func (r *run) timer() <-chan time.Time {
	due, ok := r.machine.deadline()
	if !ok {
		return nil
	}
	return r.cfg.Clock.After(due.Sub(r.cfg.Clock.Now()))
}

// feed steps the machine and performs what it asks for, in order, with all that follows from it.
func (r *run) feed(ev event) {
	gone, died := ev.(evExited)
	todo := r.machine.step(r.cfg.Clock.Now(), ev)
	if died {
		r.bury(gone)
	}
	for len(todo) > 0 {
		next := todo[0]
		todo = append(todo[1:], r.perform(next)...)
	}
	r.publish()
}

// bury forgets a process, but for what it will say again if it lacks something. What it said in a long life is not that.
func (r *run) bury(gone evExited) {
	p, c := r.processes[gone.pid], &r.machine.children[gone.child]
	delete(r.processes, gone.pid)
	switch {
	case c.lacks == "":
		r.refrains[gone.child] = refrain{}
	case len(p.output.said) < maxRefrain:
		r.refrains[gone.child] = r.refrains[gone.child].with(gone.exit.LastLine, p.output.said)
	}
}

func (r *run) perform(a action) []action {
	switch a := a.(type) {
	case acStart:
		if r.machine.stopping {
			return nil
		}
		return r.machine.step(r.cfg.Clock.Now(), r.start(a.child))
	case acSignal:
		// An error means that the process has just ended; its exit is on the way.
		r.cfg.Fail.Hit("supervisor/signal")
		if p := r.processes[a.pid]; p != nil {
			_ = p.cmd.Process.Signal(a.signal)
		}
	case acNotice:
		r.around.stderr.line([]byte(a.line))
	case acAllReady:
		r.publish()
		r.cfg.Fail.Hit("supervisor/ready")
		r.cfg.OnReady()
	case acEnding:
		if err := replaceFile(filepath.Join(RuntimeDir(r.cfg.RunDir), reasonName), []byte(a.reason)); err != nil {
			r.around.stderr.line([]byte("write reason: " + err.Error()))
		}
	}
	return nil
}

func (r *run) start(child int) event {
	r.cfg.Fail.Hit("supervisor/start/before")
	p, err := r.around.startProcess(r.cfg.Children[child], r.refrains[child])
	r.cfg.Fail.Hit("supervisor/start/after")
	if err != nil {
		return evStartFailed{child, err}
	}
	r.processes[p.cmd.Process.Pid] = p
	r.followers.Go(func() { p.follow(child, r.events) }) // ends with the process; loop takes its events until all have ended
	return evStarted{child, p.cmd.Process.Pid}
}

// publish rewrites roles.json where it has changed. Once it was written it can be written again on a full disk.
func (r *run) publish() {
	b, err := json.Marshal(r.machine.roles())
	if err == nil && string(b) == r.wrote {
		return
	}
	r.cfg.Fail.Hit("supervisor/publish")
	if err == nil {
		err = exchangeFile(filepath.Join(RuntimeDir(r.cfg.RunDir), rolesName), b)
	}
	if err == nil {
		r.wrote, r.unwritten = string(b), ""
	} else if why := err.Error(); why != r.unwritten {
		r.unwritten = why
		r.around.stderr.line([]byte("write " + rolesName + ": " + why))
	}
}

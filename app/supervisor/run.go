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

// Config describes the children and their run directory.
type Config struct {
	RunDir   string                    // created if it is missing; locked during Run
	Children []Child                   // in starting order; roles stop in the reverse order
	Change   <-chan Child              // other arguments for a role with one process, which is replaced; may be nil
	Spawn    Spawn                     // makes children that the orchestrator asks for; nil: there are no others
	Program  []string                  // the program of the children, without their arguments; this program by default
	Final    func(Child, Exit) Verdict // judges an exit; nil restarts everything
	Prepare  func() error              // called when RuntimeDir exists, before the first child; may be nil
	OnReady  func()                    // called once, when all children are running for the first time; may be nil
	Fail     *failpoint.Set            // failpoints of the process; nil for none
	Stderr   io.Writer                 // children's output and notices, whole lines; os.Stderr by default
	Clock    seam.Clock                // seam.System by default
	// Asked reports whether the process was asked to stop before Run handled its signals; may be nil.
	Asked func() bool
	// TrainersGrace is the time from SIGTERM to the stop, in which trainers may continue; 0 for none. The stop comes
	// earlier when they have left, and at another signal.
	TrainersGrace time.Duration
	// StopGrace is the time from asking the children to leave until they are killed; DefaultGrace by default.
	StopGrace time.Duration
}

// DefaultGrace is the StopGrace of a Config without one.
const DefaultGrace = 5 * time.Second

func (c Config) withDefaults() Config {
	if len(c.Program) == 0 {
		c.Program = []string{self}
	}
	if c.Final == nil {
		c.Final = func(Child, Exit) Verdict { return Restart }
	}
	if c.Spawn == nil {
		c.Spawn = func(string, int) (Child, bool) { return Child{}, false }
	}
	if c.Prepare == nil {
		c.Prepare = func() error { return nil }
	}
	if c.Asked == nil {
		c.Asked = func() bool { return false }
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
		c.StopGrace = DefaultGrace
	}
	return c
}

// run is the shell. It turns processes, signals and time into events, and carries out the machine's actions. One
// goroutine owns it.
type run struct {
	cfg       Config
	machine   *machine
	around    *surroundings
	events    chan event
	processes map[int]*process // by pid, until the machine has their exit
	followers sync.WaitGroup
	heard     map[int]heard // by child, while it waits for something
	wrote     string        // the content of roles.json
	unwritten string        // the last printed error of writing roles.json
}

// Run starts all children and keeps them running until a verdict, the context, SIGINT, SIGTERM or SIGHUP ends the run.
// After SIGTERM, trainers may continue for TrainersGrace. Another signal ends the grace. A further one kills at once.
// After the end of the parent (WithParent), trainers get no reason: they wait for the next supervisor of the directory,
// as after the death of this one. A context with the cause *Over ends the run with that result. When Run returns, no
// child is left. The error is nil with the results Stopped and Finished. It is ErrInUse if another supervisor has the
// run directory, a *FailedError if a child made the run fail, and the error of *Over.
func Run(ctx context.Context, cfg Config) (Result, error) {
	cfg = cfg.withDefaults()
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, stopSignals()...)
	defer signal.Stop(signals)
	if cfg.Asked() {
		return Stopped, nil
	}
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
		machine:   newMachine(cfg.Children, cfg.Spawn, cfg.Final, cfg.StopGrace, cfg.TrainersGrace),
		around:    &surroundings{cfg.Program, cfg.RunDir, &syncWriter{w: cfg.Stderr}, lock, lifeline},
		events:    make(chan event),
		processes: map[int]*process{},
		heard:     map[int]heard{},
	}
	reserveThreads(spareThreads + len(cfg.Children))
	r.loop(ctx, signals)
	r.followers.Wait()
	cfg.Fail.Hit("supervisor/ended")
	lifeline.Close()
	alive.Close() // open until here: the children exit when it closes
	return r.machine.result, errors.Join(r.machine.err, cleanRuntime(cfg.RunDir))
}

// loop feeds events to the machine until it is done.
func (r *run) loop(ctx context.Context, signals <-chan os.Signal) {
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
			var over *Over
			switch cause := context.Cause(ctx); {
			case errors.As(cause, &over):
				r.feed(evOver{over.Err})
			case errors.Is(cause, errParentEnded):
				r.feed(evLeave{})
			default:
				r.feed(evStop{})
			}
		case s := <-signals:
			switch {
			case asked:
				r.feed(evKill{})
			case s == syscall.SIGTERM && !r.machine.preemption.isOn():
				r.feed(evPreempt{})
			default:
				r.feed(evStop{})
			}
			asked = r.machine.stopping
		case child := <-r.cfg.Change:
			r.cfg.Fail.Hit("supervisor/change/before")
			r.feed(evChange{child})
			r.cfg.Fail.Hit("supervisor/change/after")
		case <-r.timer():
			r.feed(evTick{})
		}
	}
}

// stopSignals returns the signals that stop the run. SIGHUP is not among them under nohup.
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

// feed steps the machine and carries out its actions in order, and the actions that follow from them.
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

// bury forgets a process. It keeps the output of a short life that ended in a wait, because the next life will repeat
// it.
func (r *run) bury(gone evExited) {
	p, c := r.processes[gone.pid], &r.machine.children[gone.child]
	delete(r.processes, gone.pid)
	switch {
	case c.lacks == "":
		delete(r.heard, gone.child)
	case len(p.output.said) < maxHeard:
		was := r.heard[gone.child]
		r.heard[gone.child] = was.with(gone.exit.LastLine, p.output.said)
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
		// An error means that the process has just ended. Its exit event follows.
		r.cfg.Fail.Hit("supervisor/signal")
		if p := r.processes[a.pid]; p != nil {
			_ = p.cmd.Process.Signal(a.signal)
		}
	case acPlaced:
		r.answer(Placed(a))
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
	p, err := r.around.startProcess(r.machine.children[child].Child, r.heard[child])
	r.cfg.Fail.Hit("supervisor/start/after")
	if err != nil {
		return evStartFailed{child, err}
	}
	r.processes[p.cmd.Process.Pid] = p
	r.followers.Go(func() { p.follow(child, r.events) }) // ends with the process; loop receives its events until then
	return evStarted{child, p.cmd.Process.Pid}
}

// answer writes the answer to a request for other numbers of processes. Without it, the orchestrator asks again.
func (r *run) answer(p Placed) {
	b, err := json.Marshal(p)
	if err == nil {
		err = exchangeFile(filepath.Join(RuntimeDir(r.cfg.RunDir), placedName), b)
	}
	if err != nil {
		r.around.stderr.line([]byte("write " + placedName + ": " + err.Error()))
	}
}

// publish rewrites roles.json if it has changed. After the first time, it succeeds on a full disk, too.
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

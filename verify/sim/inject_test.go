package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"millrace/checkpoint"
)

// longestGap is the longest time between two faults, even if the trainers are slow.
const longestGap = 2 * time.Second

// injectFaults injects the script's faults until ctx ends. Then it repairs all faults that last.
func (w *world) injectFaults(ctx context.Context) {
	var mending sync.WaitGroup
	defer mending.Wait()
	for i := range w.script.Faults {
		f := &w.script.Faults[i]
		if !w.await(ctx, f.After) || !rest(ctx, f.Delay) {
			return
		}
		w.note("%s at %s %s", f.Kind, f.At, f.To)
		if repair := w.inject(f); repair != nil {
			mending.Go(func() {
				rest(ctx, f.For)
				repair()
			})
		}
		w.mu.Lock()
		w.verdict.Struck[f.Kind]++
		w.mu.Unlock()
	}
}

// await waits for a number of passes of the trainers, at most for longestGap. It returns false if ctx ends first.
func (w *world) await(ctx context.Context, places int) bool {
	timer := time.NewTimer(longestGap)
	defer timer.Stop()
	for {
		w.mu.Lock()
		passed, changed := w.passed, w.changed
		w.mu.Unlock()
		if passed >= places {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// rest waits. It returns false if ctx ends first.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *world) slot(name string) *slot {
	for _, s := range w.slots {
		if s.name == name {
			return s
		}
	}
	return nil
}

// inject injects one fault and returns a function that repairs it.
func (w *world) inject(f *fault) (repair func()) {
	at, to := w.resolve(f.At), w.resolve(f.To)
	p := w.slot(at).process()
	if p == nil {
		return nil
	}
	switch f.Kind {
	case crash, vanish:
		w.mu.Lock()
		w.unsynced = f.Size
		w.mu.Unlock()
		if f.Kind == vanish {
			p.kill(again, f.For)
		} else {
			p.kill(f.For, 0)
		}
	case stop:
		p.cancel()
	case leave:
		p.askToLeave(false)
	case rotten:
		w.rot.mu.Lock()
		w.rot.armed = f
		w.rot.mu.Unlock()
	case heal:
		w.heal(p)
	case remix:
		w.remix(p, f.Size)
	case freeze:
		return p.freeze()
	case zombie:
		thaw := p.freeze()
		p.free()
		return thaw
	case second:
		return w.startBeside(p)
	case partition:
		there, back := w.net.Hold(at, to), w.net.Hold(to, at)
		return func() { there(); back() }
	case oneWay:
		return w.net.Hold(at, to)
	case reset:
		w.net.Reset(w.address(p))
	case cut:
		_ = w.net.Cut(w.address(p)) // Cut never fails
	default:
		return w.injectSurroundings(p, f)
	}
	return nil
}

// injectSurroundings injects a fault of a process's clock or disk, of its host, or of etcd.
func (w *world) injectSurroundings(p *process, f *fault) (repair func()) {
	switch f.Kind {
	case jump:
		p.clock.jump(time.Duration(f.Size) * time.Second)
	case late:
		p.clock.lag(f.For)
	case syncDeath:
		p.disk.set(func(d *runDisk) { d.doomed = f.Size })
	case diskFull:
		p.disk.set(func(d *runDisk) { d.full = true })
		return func() { p.disk.set(func(d *runDisk) { d.full, d.spent = false, false }) }
	case slowDisk:
		p.disk.set(func(d *runDisk) { d.slow = f.For })
		return func() { p.disk.set(func(d *runDisk) { d.slow = 0 }) }
	case resize:
		w.engine.scale(f.Size)
	case engineLoss:
		return w.engine.lose()
	default:
		return w.injectSite(p, f)
	}
	return nil
}

func (d *runDisk) set(change func(*runDisk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (w *world) address(p *process) string {
	if isOrchestrator(p.slot) {
		return w.listensAt(p)
	}
	return fmt.Sprintf("%s.%d", p.slot, p.life)
}

// startBeside freezes an orchestrator and starts another on the same disk. The lock must refuse the second.
func (w *world) startBeside(p *process) (repair func()) {
	thaw := p.freeze()
	if p.isOver() || p.orchestrator.Load() == nil {
		return thaw
	}
	w.locked.Add(1)
	store, err := checkpoint.Open(checkpoint.Config{Dir: journalDir, CreatedBy: "sim", Disk: p.disk.take()})
	if err == nil {
		if store.Close(); !p.isOver() {
			w.fail("one orchestrator has the journal", "a second one opened it beside life %d", p.life)
		}
	}
	return thaw
}

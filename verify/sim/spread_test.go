package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// The kinds of fault of several hosts. Faults at the orchestrator are at the leader of the moment.
const (
	hostLoss    = "host-loss"    // the host of At is gone for For; its disk keeps Size percent of the unsynced data
	hostCut     = "host-cut"     // no bytes pass between the host of At and others for For
	hostOneWay  = "host-one-way" // no bytes pass from the host of At, or to it if Size is odd, for For
	pause       = "pause"        // the process at At stops for For: longer than the lease lasts
	etcdLoss    = "etcd-loss"    // etcd has no quorum for For
	etcdSlow    = "etcd-slow"    // each message to and from etcd takes Size milliseconds for For
	etcdCut     = "etcd-cut"     // At and etcd do not reach each other for For; if Size is odd, only answers get lost
	etcdDeposes = "etcd-deposes" // the election key is removed, and its holder is not told
)

// spread gives one script in three several hosts and their faults. Its randomness is its own, so the other scripts stay
// as they were.
func (s *script) spread(w *workload) {
	rng := rand.New(rand.NewPCG(s.Seed, 5))
	if rng.IntN(3) > 0 {
		return
	}
	s.Hosts = 1 + rng.IntN(4)
	// Virtual time stands still while a goroutine waits for a lock, such as that of a journal whose disk is slow: a
	// follower comes or goes meanwhile. A slow etcd delays the same commits.
	for i := range s.Faults {
		if f := &s.Faults[i]; f.Kind == slowDisk {
			f.Kind, f.Size = etcdSlow, rng.IntN(900)
		}
	}
	for range 1 + rng.IntN(3) {
		at := rng.IntN(len(s.Faults) + 1)
		f := newHostFault(rng, w)
		if at > 0 {
			f.After = s.Faults[at-1].After
		}
		s.Faults = slices.Insert(s.Faults, at, f)
	}
	for i := range s.Faults {
		if f := &s.Faults[i]; f.Kind == rotten {
			f.For = time.Duration(1+rng.IntN(2000)) * time.Millisecond
		}
	}
}

func newHostFault(rng *rand.Rand, w *workload) fault {
	slots := w.slots(0, w.hosts)
	ms := func(most int) time.Duration { return time.Duration(1+rng.IntN(most)) * time.Millisecond }
	f := fault{Delay: ms(50), At: slots[rng.IntN(len(slots))]}
	if rng.IntN(2) == 0 {
		f.At = orchestratorName
	}
	switch rng.IntN(12) {
	case 0, 1, 2:
		f.Kind, f.For, f.Size = hostLoss, ms(6000), rng.IntN(101)
	case 3, 4:
		f.Kind, f.For = hostCut, ms(8000)
	case 5:
		f.Kind, f.For, f.Size = hostOneWay, ms(6000), rng.IntN(2)
	case 6, 7:
		f.Kind, f.At, f.For = pause, orchestratorName, leaseTime/2+ms(9000)
	case 8:
		f.Kind, f.For = etcdLoss, ms(8000)
	case 9:
		f.Kind, f.For, f.Size = etcdSlow, ms(6000), rng.IntN(900)
	case 10:
		f.Kind, f.At, f.For, f.Size = etcdCut, orchestratorName, ms(8000), rng.IntN(2)
	case 11:
		f.Kind, f.At = etcdDeposes, orchestratorName
	}
	return f
}

// injectSite injects a fault of a process's host, or of etcd.
func (w *world) injectSite(p *process, f *fault) (repair func()) {
	switch f.Kind {
	case hostLoss:
		w.lose(p.site, f)
	case hostCut:
		return w.cutOff(p.site, true, true)
	case hostOneWay:
		return w.cutOff(p.site, f.Size%2 == 0, f.Size%2 == 1)
	case pause:
		return p.freeze()
	case etcdLoss:
		return w.etcd.Fail()
	case etcdSlow:
		w.etcd.Slow(time.Duration(f.Size) * time.Millisecond)
		return func() { w.etcd.Slow(w.script.Weather.Latency / 4) }
	case etcdCut:
		back := w.net.Hold(etcdName, p.slot)
		if f.Size%2 == 1 {
			return back
		}
		there := w.net.Hold(p.slot, etcdName)
		return func() { there(); back() }
	case etcdDeposes:
		w.etcd.Depose()
	}
	return nil
}

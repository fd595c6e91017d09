package roster

import (
	"cmp"
	"slices"
	"time"

	pb "millrace/proto"
)

// Times of the belief that hosts starve.
const (
	delayStep   = 250 * time.Millisecond // delays are rounded up to it, so that sidecars hear of changes seldom
	starvedHold = 10 * time.Second       // a host starves for so long after its newest delay of that size
	wrongHold   = 10 * time.Minute       // after a wrong verdict, hosts are believed
	// A loader that was given up and ends its stream within this time was alive. The stream of a lost host ends after
	// seam.DeadPeer.
	wrongWithin = 1500 * time.Millisecond
)

// Starvation has the hosts whose loaders get too little processor time. Beats of such a loader come late, and until
// then a sidecar cannot distinguish it from a dead one. Each loader that is given up by mistake begins again with its
// files, which takes more of the time that the host lacks. Sidecars hear of these hosts once a loader was given up by
// mistake: until then, a lost host is to be noticed soon. Not safe for concurrent use.
type Starvation struct {
	hosts   map[string]starved    // by `up`
	accused map[Session]time.Time // loaders that were given up, because a sidecar found them silent
	wrong   time.Time             // of the newest mistake; zero: there was none
}

// starved is the longest delay of a timer of a host's loaders, rounded up, and its newest time.
type starved struct {
	delay time.Duration
	at    time.Time
}

// Observe takes the longest delay of a loader's timers in the last seconds, 0 if its threads waited for no processor.
// It reports whether Order has changed.
func (s *Starvation) Observe(now time.Time, up string, delay time.Duration) (changed bool) {
	delay = rounded(delay)
	was := s.hosts[up]
	if delay == 0 || delay < was.delay {
		return false
	}
	if s.hosts == nil {
		s.hosts = map[string]starved{}
	}
	s.hosts[up] = starved{delay, now}
	return delay != was.delay && !s.wrong.IsZero()
}

// rounded returns the next multiple of delayStep; 0: the delay is shorter than that.
func rounded(delay time.Duration) time.Duration {
	if delay < delayStep {
		return 0
	}
	return (delay + delayStep - 1) / delayStep * delayStep
}

// Accuse observes that a loader was given up because a sidecar found it silent.
func (s *Starvation) Accuse(now time.Time, loader Session) {
	if s.accused == nil {
		s.accused = map[Session]time.Time{}
	}
	s.accused[loader] = now
}

// Left observes that a loader's stream ended. It reports whether Order has changed. The verdict on a loader that was
// alive counts as wrong if any host starves. Otherwise the network may have been away for a moment.
func (s *Starvation) Left(now time.Time, loader Session) (changed bool) {
	at, found := s.accused[loader]
	delete(s.accused, loader)
	if !found || len(s.hosts) == 0 || now.Sub(at) > wrongWithin {
		return false
	}
	isFirst := s.wrong.IsZero()
	s.wrong = now
	return isFirst
}

// Tick observes the time. It reports whether Order has changed.
func (s *Starvation) Tick(now time.Time) (changed bool) {
	for up, h := range s.hosts {
		if now.Sub(h.at) >= starvedHold {
			delete(s.hosts, up)
			changed = !s.wrong.IsZero()
		}
	}
	if !s.wrong.IsZero() && now.Sub(s.wrong) >= wrongHold {
		s.wrong = time.Time{}
		changed = changed || len(s.hosts) > 0
	}
	return changed
}

// Order returns the message with all hosts that starve now. There may be none.
func (s *Starvation) Order() *pb.SidecarOrder {
	all := &pb.Starved{}
	if !s.wrong.IsZero() {
		for up, h := range s.hosts {
			all.Hosts = append(all.Hosts, &pb.StarvedHost{Up: up, DelayMs: uint32(h.delay.Milliseconds())})
		}
	}
	slices.SortFunc(all.Hosts, func(a, b *pb.StarvedHost) int { return cmp.Compare(a.Up, b.Up) })
	return &pb.SidecarOrder{Order: &pb.SidecarOrder_Starved{Starved: all}}
}

package roster

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	pb "millrace/proto"
)

// The delays of loaders that sidecars hear of. Shorter ones are within the limits of every silence.
const (
	leastDelay  = 100 * time.Millisecond
	starvedHold = 30 * time.Second // a host counts as starved for so long after its newest delay of that size
)

// Starvation has the hosts whose loaders get too little processor time. Beats of such a loader come late, and no
// sidecar can tell it from a dead one before. Each loader that is replaced by mistake begins again with its files,
// which takes more of the time that the host lacks. Not safe for concurrent use.
type Starvation struct {
	hosts map[string]starved // by `up`
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
	return delay != was.delay
}

// rounded returns the next power of two in milliseconds, so that hosts are told seldom; 0: the delay is short.
func rounded(delay time.Duration) time.Duration {
	if delay < leastDelay {
		return 0
	}
	return time.Duration(1) << bits.Len64(uint64(delay.Milliseconds()-1)) * time.Millisecond
}

// Tick observes the time. It reports whether Order has changed.
func (s *Starvation) Tick(now time.Time) (changed bool) {
	for up, h := range s.hosts {
		if now.Sub(h.at) >= starvedHold {
			delete(s.hosts, up)
			changed = true
		}
	}
	return changed
}

// Order tells a sidecar all hosts that starve now; nil: none does, and none has.
func (s *Starvation) Order() *pb.SidecarOrder {
	if s.hosts == nil {
		return nil
	}
	all := &pb.Starved{}
	for up, h := range s.hosts {
		all.Hosts = append(all.Hosts, &pb.StarvedHost{Up: up, DelayMs: uint32(h.delay.Milliseconds())})
	}
	slices.SortFunc(all.Hosts, func(a, b *pb.StarvedHost) int { return cmp.Compare(a.Up, b.Up) })
	return &pb.SidecarOrder{Order: &pb.SidecarOrder_Starved{Starved: all}}
}

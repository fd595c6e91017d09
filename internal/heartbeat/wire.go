package heartbeat

import (
	"sync"
	"time"
)

// Every is the time between two beats on the wire, if at most few watchers listen. A process sends no more beats in all
// for more watchers: each gets them less often.
const (
	Every = 10 * time.Millisecond
	few   = 16
)

// LongDelay is a delay of a timer from which on its process may starve. The limits of a silence bear shorter ones.
const LongDelay = 250 * time.Millisecond

// The allowances for the first beat of a stream. A connection may have to be made before it.
const (
	opening   = 500 * time.Millisecond
	connected = 40 * time.Millisecond // there is a connection
)

// Beat is a message with which a process shows a watcher of another host that it lives, and what its page says.
type Beat struct {
	Progress uint64        // pieces of work done
	Pending  uint64        // requests in flight
	Slow     int           // see Reading.Slow; at least 1
	Stalled  time.Duration // the longest delay of its own beats in the last seconds
	Period   time.Duration // until the next beat; 0: Every
}

// Beat returns the state of this process. The pages of several streams share the questions to the kernel.
func (p *Page) Beat(now time.Time) Beat {
	ended := p.words.ended.Load() // before begun, so that their difference is never negative
	return Beat{
		Progress: p.words.progress.Load(), Pending: p.words.begun.Load() - ended,
		Slow: p.share.slow(now, p.thread.Threads), Stalled: p.stalls.longest(now),
		Period: pace(int(p.listeners.Load())),
	}
}

// Listen counts a watcher of another host, until leave is called.
func (p *Page) Listen() (leave func()) {
	p.listeners.Add(1)
	return func() { p.listeners.Add(-1) }
}

// pace returns the time between two beats to each of `listeners` watchers.
func pace(listeners int) time.Duration { return Every * time.Duration(max(1, (listeners+few-1)/few)) }

// Late notes that this process sends a beat on the wire later than it wanted to.
func (p *Page) Late(now time.Time, by time.Duration) { p.stalls.note(now, by) }

// Delayed notes that a timer of this process was late. Delays below LongDelay do not count.
func (p *Page) Delayed(now time.Time, by time.Duration) {
	if by >= LongDelay {
		p.delays.note(now, by)
	}
}

// Starved returns the longest delay of this process's timers in the last seconds, if its threads waited for a
// processor. 0: they did not.
func (p *Page) Starved(now time.Time) time.Duration {
	if p == nil || p.share.slow(now, p.thread.Threads) <= 1 {
		return 0
	}
	return p.delays.longest(now)
}

// stalls remembers the longest delay of the last seconds.
type stalls struct {
	mu sync.Mutex
	at time.Time
	by time.Duration
}

// stallMemory is the time for which a delay is remembered: longer than the kernel keeps a silent connection.
const stallMemory = 5 * time.Second

func (s *stalls) note(now time.Time, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by >= s.by || now.Sub(s.at) > stallMemory {
		s.at, s.by = now, by
	}
}

func (s *stalls) longest(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.at) > stallMemory {
		return 0
	}
	return s.by
}

// share is the share of processor time that the host gives a process.
type share struct {
	mu  sync.Mutex
	at  time.Time // of the last question
	was Threads   // its answer
	now int       // by how much the process is slower than its threads ask for
}

// The time between two questions about a process's own threads. A wait of less than a part of that time does not count.
const (
	shareEvery = 100 * time.Millisecond
	shareNoise = 20 // a twentieth
)

// slow returns the time that the threads asked for a processor, by the time that they had one. It rises at once and
// falls slowly with the time, because a busy host gives its time unevenly.
func (s *share) slow(now time.Time, threads func() Threads) int {
	if threads == nil {
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.at) < shareEvery {
		return s.now
	}
	is := threads()
	ran, waited := is.Ran-s.was.Ran, is.Waited-s.was.Waited
	slow, passed := 1, now.Sub(s.at)
	noise := passed / shareNoise
	if s.at.IsZero() { // the first answer counts from the start of the process
		noise = shareEvery / shareNoise
	}
	if waited > noise {
		slow = slowness(ran, waited)
	}
	s.now, s.at, s.was = max(slow, s.now-int(passed/shareEvery)), now, is
	return s.now
}

// slowness returns the time that threads asked for a processor, by the time that they had one.
func slowness(ran, waited time.Duration) int {
	if ran <= 0 {
		return mostSlow
	}
	return int(min(max(ran+waited, ran)/ran, mostSlow))
}

// Wire watches a process of another host by the beats that it sends. It is safe for concurrent use. The zero value
// waits for the first beat of a stream.
type Wire struct {
	mu    sync.Mutex
	beats uint64 // signs of life
	rows  uint64 // those that are no beats
	last  Beat
	heard time.Time // the time of last
	timed int       // beats without a gap of stallMemory
	isOn  bool      // the stream has brought a beat
	// isConnected: the stream was opened on an existing connection.
	isConnected bool
}

// enough is the number of beats after which their delays say how long the process waits for a processor.
const enough = 5

// Hear takes a beat.
func (w *Wire) Hear(now time.Time, b Beat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isOld(now) {
		w.timed = 0
	}
	w.beats, w.last, w.isOn = w.beats+1, b, true
	w.timed, w.heard = w.timed+1, now
}

// isOld reports whether the last beat says nothing about the process any more. The caller holds the lock.
func (w *Wire) isOld(now time.Time) bool { return now.Sub(w.heard) > stallMemory }

// Live notes another sign of life: a message of the process. A beat may be behind many bytes of other messages. A nil
// *Wire notes nothing.
func (w *Wire) Live() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beats, w.rows = w.beats+1, w.rows+1
}

// Rows returns the number of messages that were no beats.
func (w *Wire) Rows() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rows
}

// Opening notes that the stream is opened.
func (w *Wire) Opening(now time.Time, isConnected bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isConnected = isConnected; w.isOld(now) {
		w.last.Slow, w.last.Stalled = 0, 0
	}
}

// Off notes that the stream has ended. The counters of its last beat say nothing from now on.
func (w *Wire) Off() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isOn, w.isConnected, w.last.Pending = false, false, 0
}

// Sample returns the newest state of the process.
func (w *Wire) Sample() Reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := Reading{Beats: w.beats, Period: max(w.last.Period, Every), Progress: w.last.Progress,
		Pending: w.last.Pending, Slow: w.last.Slow, Stalled: w.last.Stalled}
	if w.timed < enough { // unknown: its threads' waits count
		r.Stalled = max(r.Stalled, wireOverdue)
	}
	switch {
	case !w.isOn && w.isConnected:
		r.Period = connected
	case !w.isOn:
		r.Period = opening
	}
	return r
}

package heartbeat

import "time"

// The looks of a monitor between two questions about the threads. A question costs up to half a millisecond.
const (
	askLate  = 5  // while beats are missing
	askStill = 50 // while requests make no progress
)

// mostSlow is the largest Reading.Slow.
const mostSlow = 100

// Reading is a page at one moment, and the kernel's answers about its process. The kernel is asked only while a beat
// is missing or requests make no progress.
type Reading struct {
	Pid      int
	Beats    uint64
	Period   time.Duration // until the next beat, as promised
	Progress uint64        // pieces of work done
	Pending  uint64        // requests in flight
	Down     bool          // stopped, ending or gone, or about to be
	Ran      bool          // the process had processor time since the look before
	Waits    bool          // without a beat: a thread waits for a processor, or for a device
	// without progress: the time that the threads asked for a processor, by the time they had one
	Slow int
	// of another host: the longest delay of its own beats in the last seconds
	Stalled time.Duration
	// of another host that starves: the longest delay of its loaders' timers; the next beat may be as late
	Starved time.Duration
}

// Threads is the kernel's account of all threads of a process.
type Threads struct {
	Runnable bool          // at least one waits for a processor or has one
	Blocked  bool          // at least one is in an uninterruptible wait for a device
	Doomed   bool          // the process is stopped, or a signal that kills or stops it is pending
	Ran      time.Duration // processor time that they had
	Waited   time.Duration // time that they waited for a processor
}

// Kernel answers about the process that a monitor watches.
type Kernel struct {
	IsDown  func() bool // whether the process is stopped, ending or gone
	HasRun  func() bool // whether the process had processor time since the call before
	Threads func() Threads
	Close   func() error
}

// Monitor watches the page of another process. Not safe for concurrent use.
type Monitor struct {
	words  *Words
	pid    int
	kernel Kernel

	last    Reading // of the look before
	missed  int     // looks since the last beat
	still   int     // looks since the last progress, with requests pending
	threads Threads // the last answer
}

// NewMonitor returns a monitor of the page of process pid.
func NewMonitor(words *Words, pid int, kernel Kernel) *Monitor {
	return &Monitor{words: words, pid: pid, kernel: kernel}
}

// Sample reads the page. It stays readable after its owner has died.
func (m *Monitor) Sample() Reading {
	ended := m.words.ended.Load() // before begun, so that their difference is never negative
	r := Reading{
		Pid: m.pid, Beats: m.words.beats.Load(), Period: time.Duration(m.words.period.Load()),
		Progress: m.words.progress.Load(), Pending: m.words.begun.Load() - ended,
	}
	if r.Beats == m.last.Beats {
		r.Down, r.Ran, r.Waits = m.kernel.IsDown(), m.kernel.HasRun(), m.last.Waits
		m.missed++
	} else {
		m.missed = 0
	}
	if r.Pending > 0 && r.Progress == m.last.Progress {
		r.Slow = m.last.Slow
		m.still++
	} else {
		m.still = 0
	}
	isLate, isStill := m.missed > 0 && m.missed%askLate == 0, m.still > 0 && m.still%askStill == 0
	if !r.Down && (isLate || isStill) {
		m.ask(&r, isLate)
	}
	m.last = r
	return r
}

// ask enters the account of the threads into a reading.
func (m *Monitor) ask(r *Reading, isLate bool) {
	was := m.threads
	m.threads = m.kernel.Threads()
	r.Down = m.threads.Doomed
	if isLate {
		r.Waits = m.threads.Runnable || m.threads.Blocked
	}
	if m.still == 0 {
		return
	}
	ran, waited := m.threads.Ran-was.Ran, m.threads.Waited-was.Waited
	switch {
	case ran > 0:
		r.Slow = slowness(ran, waited)
	case waited > 0, isLate && m.threads.Runnable:
		r.Slow = mostSlow
	default:
		r.Slow = 1
	}
}

// Close releases the page; no Sample may follow.
func (m *Monitor) Close() error { return m.kernel.Close() }

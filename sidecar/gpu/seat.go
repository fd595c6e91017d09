package gpu

import (
	"log/slog"
	"slices"
	"time"

	"millrace/sidecar"
)

const (
	// settleAfter is the least time over which idle time and waits are compared. The driver's utilisation is that of up
	// to one second before a sample.
	settleAfter = 5 * time.Second
	// A period of judgeAfter in which a GPU idled for data for tooMuch of the time is a warning, and one with less than
	// enough is its end.
	judgeAfter = time.Minute
	tooMuch    = 0.1
	enough     = 0.05
)

// seat is a connected trainer, its GPU and the GPU's idle time.
type seat struct {
	number int
	at     sidecar.Seat
	device Device
	lacks  string // why the device is unknown

	total time.Duration // the trainer's waits, as it reported last
	heard bool          // it has reported before
	// Since the comparison before:
	waits, idle, passed time.Duration
	told                bool

	idleData, idleOther time.Duration
	period              period
	starved, hampered   bool // the warning was logged and is not over
}

// period has the sums of the time since the judgement before.
type period struct{ passed, data, throttled time.Duration }

// waited notes the trainer's total of waits. The first total is the base of later ones.
func (s *seat) waited(total time.Duration) {
	if s.heard && total > s.total {
		s.waits += total - s.total
	}
	s.total, s.heard, s.told = total, true, true
}

// account adds the time since the sample before. Idle time counts as a wait for data up to the time that the trainer
// waited over the same stretch. A trainer reports its waits at each step, so that a stretch ends after a report.
func (s *seat) account(sample Sample, passed time.Duration) {
	if !sample.Measured {
		return
	}
	s.idle += time.Duration((1 - sample.Busy) * float64(passed))
	s.passed += passed
	if !s.told || s.passed < settleAfter {
		return
	}
	data := min(s.idle, s.waits)
	s.idleData += data
	s.idleOther += s.idle - data
	s.period.data += data
	s.waits, s.idle, s.passed, s.told = 0, 0, 0, false
}

// tell logs when a GPU begins or ends to idle for data, and when it begins or ends to run slower than it could.
func (s *seat) tell(log *slog.Logger, sample Sample, passed time.Duration) {
	s.period.passed += passed
	if isHampered(sample) {
		s.period.throttled += passed
	}
	if s.period.passed < judgeAfter {
		return
	}
	data, throttled := s.period.share(s.period.data), s.period.share(s.period.throttled)
	s.period = period{}
	if s.starved != (data >= tooMuch) && (data >= tooMuch || data < enough) {
		s.starved = !s.starved
		if s.starved {
			log.Warn("a GPU idles because its trainer waits for data", "part_of_the_time", data)
		} else {
			log.Warn("over: a GPU idles because its trainer waits for data", "part_of_the_time", data)
		}
	}
	if s.hampered != (throttled >= tooMuch) && (throttled >= tooMuch || throttled < enough) {
		s.hampered = !s.hampered
		if s.hampered {
			log.Warn("a GPU runs slower than it could", "reasons", sample.Throttled, "part_of_the_time", throttled)
		} else {
			log.Warn("over: a GPU runs slower than it could", "part_of_the_time", throttled)
		}
	}
}

func (p period) share(part time.Duration) float64 { return float64(part) / float64(p.passed) }

// isHampered reports whether a GPU is throttled for a reason that is not part of normal work at full load.
func isHampered(s Sample) bool {
	return slices.ContainsFunc(
		s.Throttled,
		func(reason string) bool { return reason != powerCap && reason != syncBoost },
	)
}

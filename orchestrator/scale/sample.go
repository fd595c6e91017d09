package scale

import "time"

// Sample is the counters of a run at a time. Slices are by source, and the caller does not change them later.
type Sample struct {
	At     time.Time
	Step   uint64    // that the slowest rank has consumed
	Served uint64    // tokens of the steps below
	Waited float64   // seconds that the rank which waited most has waited for loaders
	Blamed string    // the source of the newest of these waits
	Busy   []float64 // seconds of work of all loaders
	Made   []float64 // tokens that the work made
	Names  []string
	There  int     // loaders that read a stripe
	Lanes  float64 // work that one loader does at once
}

// The present is measured over at least recent and fewSteps, and at most longest.
const (
	recent   = 10 * time.Second
	fewSteps = 3
	longest  = 5 * time.Minute
	least    = 4 * time.Second // a shorter stretch tells nothing
)

// trim drops the samples before the present.
func trim(past []Sample) []Sample {
	last := &past[len(past)-1]
	for len(past) > 2 {
		span, steps := last.At.Sub(past[1].At), last.Step-past[1].Step
		if span < recent || steps < fewSteps && span < longest {
			break
		}
		past = past[1:]
	}
	return past
}

// measures are the rates between two samples.
type measures struct {
	at         time.Time
	span       time.Duration
	step       uint64
	steps      float64 // a second
	speed      float64 // tokens a second
	waited     float64 // part of the time
	blamed     string
	busy, made []float64
	names      []string
	lanes      float64
}

// measure returns the rates over the samples, the oldest first. ok is false if they tell nothing.
func measure(past []Sample) (m measures, ok bool) {
	if len(past) == 0 {
		return m, false
	}
	first, last := &past[0], &past[len(past)-1]
	m = measures{at: last.At, span: last.At.Sub(first.At), step: last.Step, names: last.Names, lanes: last.Lanes,
		busy: make([]float64, len(last.Busy)), made: make([]float64, len(last.Made))}
	if m.span < least {
		return m, false
	}
	t := m.span.Seconds()
	m.steps = float64(last.Step-first.Step) / t
	m.speed = float64(last.Served-first.Served) / t
	if m.waited = min((last.Waited-first.Waited)/t, 1); m.waited > 0 {
		m.blamed = last.Blamed
	}
	for i := range m.busy {
		m.busy[i], m.made[i] = last.Busy[i]-first.Busy[i], last.Made[i]-first.Made[i]
	}
	return m, true
}

// after returns the step of a later time.
func (m *measures) after(t time.Duration) uint64 { return m.step + uint64(m.steps*t.Seconds()) }

// reading returns the tokens that loaders made a second. If they make none, because others read the files, it is the
// speed of the ranks.
func (m *measures) reading() float64 {
	made := 0.0
	for _, tokens := range m.made {
		made += tokens
	}
	if made == 0 {
		return m.speed
	}
	return made / m.span.Seconds()
}

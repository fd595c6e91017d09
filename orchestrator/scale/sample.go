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
	Docs   []float64 // documents that they are of
	Names  []string
	There  int     // loaders that read a stripe
	Lanes  float64 // work that one loader does at once
}

// The present is measured over at least recent and fewSteps, and at most longest. If loaders make few documents, it is
// up to patient, because documents are uneven.
const (
	recent   = 10 * time.Second
	fewSteps = 3
	fewDocs  = 64
	patient  = time.Minute
	longest  = 5 * time.Minute
	least    = 4 * time.Second // a shorter stretch is too noisy to measure
)

// trim drops the samples before the present.
func trim(past []Sample) []Sample {
	last := &past[len(past)-1]
	for len(past) > 2 {
		next := &past[1]
		span, docs := last.At.Sub(next.At), total(last.Docs)-total(next.Docs)
		if span < recent || last.Step-next.Step < fewSteps && span < longest ||
			docs > 0 && docs < fewDocs && span < patient {
			break
		}
		past = past[1:]
	}
	return past
}

func total(bySource []float64) (sum float64) {
	for _, x := range bySource {
		sum += x
	}
	return sum
}

// measures are the rates between two samples.
type measures struct {
	at     time.Time
	span   time.Duration
	step   uint64
	steps  float64 // a second
	speed  float64 // tokens a second
	waited float64 // part of the time
	blamed string
	busy   float64 // seconds of work of all loaders
	made   float64 // tokens that it made
	names  []string
	lanes  float64
}

// measure returns the rates over the samples, the oldest first. ok is false if they are not enough to measure.
func measure(past []Sample) (m measures, ok bool) {
	if len(past) == 0 {
		return m, false
	}
	first, last := &past[0], &past[len(past)-1]
	m = measures{at: last.At, span: last.At.Sub(first.At), step: last.Step, names: last.Names, lanes: last.Lanes,
		busy: total(last.Busy) - total(first.Busy), made: total(last.Made) - total(first.Made)}
	if m.span < least {
		return m, false
	}
	t := m.span.Seconds()
	m.steps = float64(last.Step-first.Step) / t
	m.speed = float64(last.Served-first.Served) / t
	if m.waited = min((last.Waited-first.Waited)/t, 1); m.waited > 0 {
		m.blamed = last.Blamed
	}
	return m, true
}

// after returns the step of a later time.
func (m *measures) after(t time.Duration) uint64 { return m.step + uint64(m.steps*t.Seconds()) }

// reading returns the tokens that loaders made a second. If they make none, because others read the files, it is the
// speed of the ranks.
func (m *measures) reading() float64 {
	if m.made == 0 {
		return m.speed
	}
	return m.made / m.span.Seconds()
}

// load returns the number of loaders that were busy. While loaders read ahead, it says nothing about the work of the
// ranks. But it is never less than that work, or than all loaders, for long.
func (m *measures) load() float64 {
	if m.lanes <= 0 {
		return 0
	}
	return m.busy / m.span.Seconds() / m.lanes
}

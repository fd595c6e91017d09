package scale

import (
	"fmt"
	"time"
)

// need computes the work that the ranks ask for.
type need struct {
	shares func(step uint64) []float64
	costs  costs
}

// work is an amount of work in loaders: 1 keeps one loader busy.
type work struct {
	total  float64
	source int // that takes the most of it, -1: none
	part   float64
}

// of returns the work of the ranks at their speed without waits, for the mixture of a step. A source of unknown cost
// costs the mean of the others.
func (n *need) of(m measures, step uint64) work {
	w := work{source: -1}
	if m.lanes <= 0 {
		return w
	}
	asked := m.speed / (1 - min(m.waited, mostWaited))
	mean, known := 0.0, 0
	for _, c := range n.costs.now {
		if c > 0 {
			mean, known = mean+c, known+1
		}
	}
	mean /= float64(max(known, 1))
	for i, share := range n.shares(step) {
		cost := mean
		if i < len(n.costs.now) && n.costs.now[i] > 0 {
			cost = n.costs.now[i]
		}
		takes := share * asked * cost / m.lanes
		if w.total += takes; takes > w.part {
			w.part, w.source = takes, i
		}
	}
	return w
}

// mostWaited bounds the part of the waits that counts. Beyond it, the speed without waits is a guess.
const mostWaited = 0.9

// looks is the number of times at which the mixture ahead is looked at.
const looks = 12

// ahead returns the most work that comes within the time that a new loader needs, and when it comes. It counts if it
// stays for as long as a loader needs: a shorter rise is over before.
func (n *need) ahead(m measures, ready time.Duration) (most work, step uint64, in time.Duration) {
	lead := ready + ready/2 + every
	for i := 1; i <= looks; i++ {
		t := lead * time.Duration(i) / looks
		first := n.of(m, m.after(t))
		if stays := n.of(m, m.after(t+ready)); stays.total < first.total {
			first = stays
		}
		if first.total > most.total*(1+1e-9) {
			most, step, in = first, m.after(t), t
		}
	}
	return most, step, in
}

// most returns the most work within a time.
func (n *need) most(m measures, within time.Duration) (most float64) {
	for i := range looks + 1 {
		most = max(most, n.of(m, m.after(within*time.Duration(i)/looks)).total)
	}
	return most
}

// most names the source with the most work, if it has a third of it or more.
func (w work) most(m measures) string {
	if w.source < 0 || w.source >= len(m.names) || w.part < w.total/3 {
		return ""
	}
	return fmt.Sprintf(", %.0f %% of it for source %s", 100*w.part/w.total, m.names[w.source])
}

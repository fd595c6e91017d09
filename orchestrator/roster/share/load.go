package share

import "cmp"

// load is the work and the memory of one loader.
type load struct {
	name    string
	order   int // among the loaders
	work    int64
	held    int64       // resident bytes of the sources
	stripes map[int]int // by source
}

func (l *load) add(st Stripe) {
	if l.stripes[st.Source]++; l.stripes[st.Source] == 1 {
		l.held += st.Resident
	}
	l.work += st.Work
}

func (l *load) remove(st Stripe) {
	if l.stripes[st.Source]--; l.stripes[st.Source] == 0 {
		l.held -= st.Resident
	}
	l.work -= st.Work
}

// compare orders loaders that may get a stripe of a source.
func (l *load) compare(other *load, source int) int {
	return cmp.Or(
		cmp.Compare(l.work, other.work),
		cmp.Compare(l.stripes[source], other.stripes[source]),
		cmp.Compare(l.order, other.order),
	)
}

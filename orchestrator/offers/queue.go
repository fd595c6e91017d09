package offers

import (
	"cmp"
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/orchestrator/planner"
)

// Queue merges the offers of the stripes of one source into one sequence in ordinal order. It keeps them until Release.
// The order of arrival has no effect: an ordinal that is missing is Pending. One owner; not for concurrent use.
type Queue struct {
	source     string
	stripes    uint64
	first      millrace.Ordinal      // ordinal of metas[0]
	metas      []millrace.SampleMeta // without gaps
	rejects    map[millrace.Ordinal]millrace.Quarantine
	runs       map[millrace.Ordinal]tokenid.Runs // see Batch.Runs
	waiting    [][]millrace.SampleMeta           // per stripe: offered, but an earlier ordinal is missing
	seekPoints []millrace.SeekPoint              // ascending, the newest at or below `first` and all after it
	ended      bool
	end        millrace.Ordinal          // the first ordinal after the source's end; valid if ended
	settled    map[millrace.Ordinal]fate // of documents that loaders may offer otherwise than plans took them
	sealed     Sealed                    // may be nil
}

// Sealed finds the segments of a document in the steps that the run has sealed, in any attempt, by offset. It returns
// none if their plans are no longer kept.
type Sealed func(millrace.Ordinal) ([]millrace.Segment, error)

// fate is how plans took a document.
type fate struct {
	tokens uint32               // its length, if bad is nil
	bad    *millrace.Quarantine // it counted nothing
	labels []millrace.Segment   // with untrained labels, by offset
}

// add adds a segment with untrained labels.
func (f *fate) add(seg millrace.Segment) {
	at, found := slices.BinarySearchFunc(f.labels, seg, bySegment)
	if !found && seg.Untrained > 0 {
		f.labels = slices.Insert(slices.Clone(f.labels), at, seg)
	}
}

func bySegment(a, b millrace.Segment) int { return cmp.Compare(a.Offset, b.Offset) }

// runs returns runs of an ordinal that begins at a token of its document. They count as the segments do; inside a
// segment, its last labels are the untrained ones.
func (f *fate) runs(begin uint32) (out tokenid.Runs, untrained uint32) {
	at := begin
	for _, seg := range f.labels {
		end := seg.Offset + seg.Length // of the tokens that are its labels
		if seg.More {
			end++
		}
		if from := end - seg.Untrained; seg.Untrained <= seg.Length && from >= at {
			out = out.Append(from-at, seg.Untrained)
			at, untrained = end, untrained+seg.Untrained
		}
	}
	return out, untrained
}

// NewQueue returns the queue of a source with the given number of stripes. It expects ordinals from 0 on.
func NewQueue(source string, stripes int) *Queue {
	return &Queue{
		source:  source,
		stripes: uint64(stripes),
		rejects: map[millrace.Ordinal]millrace.Quarantine{},
		runs:    map[millrace.Ordinal]tokenid.Runs{},
		settled: map[millrace.Ordinal]fate{},
		waiting: make([][]millrace.SampleMeta, stripes),
	}
}

// Source returns the source's name.
func (q *Queue) Source() string { return q.source }

// Reset drops all offers and expects ordinals from `from` on.
func (q *Queue) Reset(from millrace.Ordinal) {
	settled, sealed := q.settled, q.sealed
	*q = *NewQueue(q.source, int(q.stripes))
	q.first, q.settled, q.sealed = from, settled, sealed
}

// First returns the first ordinal that is kept.
func (q *Queue) First() millrace.Ordinal { return q.first }

// Next returns the first ordinal that is not known.
func (q *Queue) Next() millrace.Ordinal { return q.first + millrace.Ordinal(len(q.metas)) }

// Rejected returns the quarantine record of a kept ordinal that cannot be decoded.
func (q *Queue) Rejected(o millrace.Ordinal) (millrace.Quarantine, bool) {
	r, ok := q.rejects[o]
	return r, ok
}

// The least number of ordinals to ask for. A loader may have to tokenise a document to find its length, so the first
// bound is shared by all sources: a run of many sources asks for no more documents than a run of a few.
const (
	firstAhead = 2048 // of all sources together
	mostFirst  = 256  // of one source
	leastFirst = 8    // of one source
)

// Ahead returns the ordinal below which to ask for offers of one of `sources` sources. The source is read at `from` and
// needs about span more ordinals.
func Ahead(from, span millrace.Ordinal, sources int) millrace.Ordinal {
	least := min(max(firstAhead/millrace.Ordinal(max(sources, 1)), leastFirst), mostFirst)
	return from + max(least, span)
}

// Demand returns the ordinal below which to ask for offers of one of `sources` sources when a plan waits for an
// ordinal. The span doubles with every call inside a step, so even a large step needs few calls. The need of one step
// bounds the span.
func (q *Queue) Demand(at millrace.Ordinal, sources int) millrace.Ordinal {
	return Ahead(at, at-min(q.first, at), sources)
}

func (q *Queue) stripe(o millrace.Ordinal) uint64 { return o.Stripe(q.stripes) }

// KnownBelow returns an ordinal up to which the offers of a stripe are known. A loader that takes over the stripe may
// begin there.
func (q *Queue) KnownBelow(stripe int) millrace.Ordinal {
	if w := q.waiting[stripe]; len(w) > 0 {
		return w[len(w)-1].Ordinal + 1
	}
	return q.Next()
}

// SetPlanned gives a document that can no longer be decoded the length with which it was planned, and the labels of one
// of its segments. Later offers do not change that, so a replay gives the same plan.
func (q *Queue) SetPlanned(seg millrace.Segment, tokens uint32) {
	delete(q.rejects, seg.Ordinal)
	f := q.settled[seg.Ordinal]
	f.bad, f.tokens = nil, tokens
	f.add(seg)
	q.settle(seg.Ordinal, f)
}

// SetRejected makes a document count nothing, because a step was planned without it. Later offers do not change that,
// even if it can be decoded again.
func (q *Queue) SetRejected(o millrace.Ordinal, bad millrace.Quarantine) {
	q.settle(o, fate{bad: &bad})
}

// Recall makes the queue look for each document that is offered as bad in the sealed steps. A document that they hold
// went bad after they were sealed. It keeps its planned length, so a step that is planned again holds the same. Its
// segments are masked if no loader can read them.
func (q *Queue) Recall(sealed Sealed) { q.sealed = sealed }

// recall settles a document that is offered as bad, if a sealed step holds it.
func (q *Queue) recall(meta millrace.SampleMeta) (millrace.SampleMeta, error) {
	if _, ok := q.settled[meta.Ordinal]; ok || !meta.Rejected || q.sealed == nil {
		return meta, nil
	}
	segments, err := q.sealed(meta.Ordinal)
	if err != nil || len(segments) == 0 || segments[len(segments)-1].ID != meta.ID {
		return meta, err
	}
	last := segments[len(segments)-1]
	f := fate{tokens: last.Offset + last.Length}
	if last.More {
		f.tokens++
	}
	for _, seg := range segments {
		f.add(seg)
	}
	q.settled[meta.Ordinal] = f
	return q.asPlanned(meta), nil
}

func (q *Queue) settle(o millrace.Ordinal, f fate) {
	q.settled[o] = f
	if o >= q.first && o < q.Next() {
		q.metas[o-q.first] = q.asPlanned(q.metas[o-q.first])
	}
	for _, w := range q.waiting {
		for i := range w {
			w[i] = q.asPlanned(w[i])
		}
	}
}

func (q *Queue) asPlanned(meta millrace.SampleMeta) millrace.SampleMeta {
	switch f, ok := q.settled[meta.Ordinal]; {
	case ok && f.bad != nil:
		meta.Rejected, meta.Lengths, meta.Refused, meta.Untrained = true, millrace.Lengths{}, 0, 0
		q.rejects[meta.Ordinal] = *f.bad
	case ok && meta.Rejected:
		meta.Rejected, meta.Lengths.Tokens = false, f.tokens
		q.runs[meta.Ordinal], meta.Untrained = f.runs(meta.Offset)
	}
	return meta
}

// Add adds a loader's offers. The first offer of an ordinal is kept, even if a later reading finds a good document bad
// or a bad one good. Any other difference is an error: the file changed during the run.
func (q *Queue) Add(b Batch) error {
	if uint64(b.Stripe) >= q.stripes {
		return fmt.Errorf("source %s: a loader offers stripe %d, but there are %d stripes", q.source, b.Stripe,
			q.stripes)
	}
	for _, meta := range b.Metas {
		if err := q.take(meta, &b); err != nil {
			return err
		}
	}
	for _, a := range b.SeekPoints {
		q.SeekPoint(a)
	}
	if b.Ended {
		q.ended, q.end = true, b.End
	}
	q.merge()
	return nil
}

// take adds one offer of a batch.
func (q *Queue) take(meta millrace.SampleMeta, b *Batch) error {
	stripe := uint64(b.Stripe)
	if meta.Ordinal < q.first {
		return nil
	}
	meta = q.asPlanned(meta)
	w := q.waiting[stripe]
	switch {
	case meta.Ordinal < q.Next():
		return q.compare(q.metas[meta.Ordinal-q.first], meta)
	case len(w) > 0 && meta.Ordinal <= w[len(w)-1].Ordinal:
		byOrdinal := func(m millrace.SampleMeta, o millrace.Ordinal) int { return cmp.Compare(m.Ordinal, o) }
		if i, ok := slices.BinarySearchFunc(w, meta.Ordinal, byOrdinal); ok {
			return q.compare(w[i], meta)
		}
		return nil
	}
	meta, err := q.recall(meta)
	if err != nil {
		return err
	}
	if r, ok := b.Rejects[meta.Ordinal]; ok && meta.Rejected && q.settled[meta.Ordinal].bad == nil {
		q.rejects[meta.Ordinal] = r
	}
	if runs, ok := b.Runs[meta.Ordinal]; ok {
		q.runs[meta.Ordinal] = runs
	}
	if len(w) == 0 && meta.Ordinal == q.Next() && q.stripe(meta.Ordinal) == stripe {
		q.metas = append(q.metas, meta)
		return nil
	}
	q.waiting[stripe] = append(w, meta)
	return nil
}

// compare returns an error if two readings of an ordinal find two different documents. Plans may show a shorter length
// than a reading does.
func (q *Queue) compare(was, now millrace.SampleMeta) error {
	_, isSettled := q.settled[now.Ordinal]
	if was == now ||
		was.Ordinal == now.Ordinal && was.Epoch == now.Epoch && was.ID == now.ID &&
			(was.Rejected || now.Rejected || isSettled) {
		return nil
	}
	return millrace.Errorf(millrace.ErrMismatch,
		"source %s: ordinal %d was %+v and is now %+v: a file changed during the run; restore it, or start a new run",
		q.source, now.Ordinal, was, now)
}

// merge moves waiting offers that are next in ordinal order.
func (q *Queue) merge() {
	for {
		s := q.stripe(q.Next())
		w := q.waiting[s]
		if len(w) == 0 || w[0].Ordinal != q.Next() {
			return
		}
		q.metas = append(q.metas, w[0])
		q.waiting[s] = w[1:]
	}
}

// SeekPoint adds a place from which the source can be read.
func (q *Queue) SeekPoint(a millrace.SeekPoint) {
	at := len(q.seekPoints)
	for at > 0 && q.seekPoints[at-1].Ordinal >= a.Ordinal {
		if q.seekPoints[at-1] == a {
			return
		}
		at--
	}
	q.seekPoints = slices.Insert(q.seekPoints, at, a)
}

// bad returns the number of kept offers of records that cannot be decoded, and the first such record.
func (q *Queue) bad() (n int, first millrace.Quarantine) {
	least := ^millrace.Ordinal(0)
	for o, r := range q.rejects {
		if o < least {
			least, first = o, r
		}
	}
	return len(q.rejects), first
}

// Explain adds to an error of planning the bad records that the sources held in place of documents. If there are no
// documents because of them, they come first.
func (qs Queues) Explain(err error) error {
	for _, q := range qs {
		n, first := q.bad()
		switch {
		case n == 0:
		case planner.FoundNothing(err):
			err = fmt.Errorf("source %s: %d records could not be decoded; the first is %s at byte %d: %s: %s; so: %w",
				q.Source(), n, first.ID, first.Offset, first.Reason, first.Cure(), err)
		default:
			err = fmt.Errorf("%w; source %s: %d records could not be decoded, the first is %s at byte %d: %s", err,
				q.Source(), n, first.ID, first.Offset, first.Reason)
		}
	}
	return err
}

// SeekPointAt returns the newest seek point at or below an ordinal.
func (q *Queue) SeekPointAt(o millrace.Ordinal) (millrace.SeekPoint, bool) {
	for i := len(q.seekPoints) - 1; i >= 0; i-- {
		if q.seekPoints[i].Ordinal <= o {
			return q.seekPoints[i], true
		}
	}
	return millrace.SeekPoint{}, false
}

// Release drops offers below an ordinal that no plan goes back to. It no longer waits for missing offers below it,
// because the loaders drop them too.
func (q *Queue) Release(below millrace.Ordinal) {
	if below > q.first {
		n := min(int(below-q.first), len(q.metas))
		for o := range q.rejects {
			if o < below {
				delete(q.rejects, o)
			}
		}
		for o := range q.runs {
			if o < below {
				delete(q.runs, o)
			}
		}
		q.metas = q.metas[n:] // append frees the memory before it when it moves the rest
		q.first = below
		for s, w := range q.waiting {
			for len(w) > 0 && w[0].Ordinal < below {
				w = w[1:]
			}
			q.waiting[s] = w
		}
		q.merge()
	}
	for len(q.seekPoints) > 1 && q.seekPoints[1].Ordinal <= q.first {
		q.seekPoints = q.seekPoints[1:]
	}
}

// Queues is the planner's view of all sources, in name order.
type Queues []*Queue

// Peek implements planner.Offers.
func (qs Queues) Peek(source int, o millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	q := qs[source]
	switch {
	case q.ended && o >= q.end:
		return millrace.SampleMeta{}, planner.Ended
	case o >= q.first && o < q.Next():
		return q.metas[o-q.first], planner.Ready
	default:
		return millrace.SampleMeta{}, planner.Pending
	}
}

// Untrained implements planner.Labels.
func (qs Queues) Untrained(seg *millrace.Segment) (n uint32, ok bool) {
	q := qs[seg.Source]
	runs, ok := q.runs[seg.Ordinal]
	if !ok || seg.Ordinal < q.first || seg.Ordinal >= q.Next() {
		return 0, false
	}
	from := seg.Offset - q.metas[seg.Ordinal-q.first].Offset
	to := from + seg.Length
	if seg.More {
		to++
	}
	return runs.Untrained(from+1, to), true
}

// SeekPoint implements planner.SeekPoints.
func (qs Queues) SeekPoint(source int, at millrace.Ordinal) millrace.SeekPoint {
	a, _ := qs[source].SeekPointAt(at)
	return a
}

var (
	_ planner.Offers     = Queues(nil)
	_ planner.SeekPoints = Queues(nil)
	_ planner.Labels     = Queues(nil)
)

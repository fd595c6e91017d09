package figures

import (
	"millrace/internal/activity"
	pb "millrace/proto"
)

// Work is the work of the loaders since the board was made. Slices are by source. No number gets smaller.
type Work struct {
	Busy   []float64 // seconds of reading, decoding and tokenising, of all decoders of all loaders
	Made   []float64 // tokens that the work made
	Docs   []float64 // documents that they are of
	Waited float64   // seconds that the rank which waited most has waited for loaders
	Blamed string    // the source of the newest of these waits
	Lanes  float64   // work that a loader does at once, on average; 0: not known
}

// work sums up the counters of processes that come and go.
type work struct {
	busy, made, docs map[string]float64
	waited           map[uint32]float64
	blamed           string
}

func newWork() work {
	return work{busy: map[string]float64{}, made: map[string]float64{}, docs: map[string]float64{},
		waited: map[uint32]float64{}}
}

// add adds the growth of a loader's counters over some seconds. It is never busier than all its lanes for all the time:
// beside its decoders, it may read single documents, and wait for files that do not answer.
func (w *work) add(before map[string]*pb.SourceFigures, now *pb.Figures, seconds float64) {
	grown, total := make([]float64, len(now.Sources)), 0.0
	for i, s := range now.Sources {
		grown[i] = max(busy(s)-busy(before[s.Source]), 0)
		total += grown[i]
	}
	part := 1.0
	if most := seconds * float64(now.Lanes); total > most {
		part = max(most, 0) / total
	}
	for i, s := range now.Sources {
		w.busy[s.Source] += part * grown[i]
		w.made[s.Source] += float64(max(s.Tokens-before[s.Source].GetTokens(), 0))
		w.docs[s.Source] += float64(max(s.Documents-before[s.Source].GetDocuments(), 0))
	}
}

func busy(f *pb.SourceFigures) (sum float64) {
	for i, kind := range f.GetKind() {
		if isLoaders(activity.Kind(kind)) {
			sum += f.Seconds[i]
		}
	}
	return sum
}

func isLoaders(kind activity.Kind) bool {
	switch kind {
	case activity.Read, activity.Storage, activity.Decode, activity.Tokenise:
		return true
	}
	return false
}

// wait adds a wait of a rank, if it was one for a loader.
func (w *work) wait(of uint32, seconds float64, cause *pb.Activity) {
	if kind := activity.Kind(cause.GetKind()); isLoaders(kind) || kind == activity.Fetch {
		w.waited[of] += seconds
		w.blamed = cause.GetSource()
	}
}

// Work returns the work of the loaders for some sources.
func (b *Board) Work(sources []string) Work {
	out := Work{Blamed: b.work.blamed}
	for _, name := range sources {
		out.Busy, out.Made = append(out.Busy, b.work.busy[name]), append(out.Made, b.work.made[name])
		out.Docs = append(out.Docs, b.work.docs[name])
	}
	for _, seconds := range b.work.waited {
		out.Waited = max(out.Waited, seconds)
	}
	loaders := 0
	for _, r := range b.roles {
		if r.lanes > 0 && b.now.Sub(r.seen) <= gone {
			out.Lanes, loaders = out.Lanes+float64(r.lanes), loaders+1
		}
	}
	out.Lanes /= float64(max(loaders, 1))
	return out
}

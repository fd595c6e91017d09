package decode

import (
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/sources/facts/kept"
	"millrace/sources/read/filter"
)

// others are further sources whose lengths are found with those of a decoder's source.
type others []another

type another struct {
	src   *sources.Source
	judge *sources.Judge
	found []kept.Length // of one shard
}

func othersOf(src *sources.Source) (list others) {
	for _, other := range src.Others() {
		list = append(list, another{src: other, judge: other.Judge()})
	}
	return list
}

// begin forgets the lengths of a part that was not finished.
func (list others) begin() {
	for i := range list {
		list[i].found = list[i].found[:0]
	}
}

// ask asks the sources about a record from which a document of `tokens` tokens was made. ids are those that were read.
func (list others) ask(r *sources.Record, tokens uint32, ids []uint32) {
	for i := range list {
		o := &list[i]
		bits, err := o.judge.Refused(r, int(tokens))
		if err == nil && bits&filter.Own == 0 {
			_, err = o.judge.Passed(r)
		}
		next := kept.Length{Record: r.Number, Tokens: tokens, Refused: bits, Bad: err != nil}
		if o.src.HasUntrained() {
			next.Untrained = untrainedLabels(ids)
		}
		o.found = append(o.found, next)
	}
}

// tell reports a record without a document to the sources.
func (list others) tell(r *sources.Record, cause error) {
	for i := range list {
		o := &list[i]
		bits, ok := o.judge.LeavesOut(r, cause)
		o.found = append(o.found, kept.Length{Record: r.Number, Refused: bits, Bad: !ok})
	}
}

// remember keeps the lengths found in a shard.
func (list others) remember(shard uint32) {
	for i := range list {
		o := &list[i]
		o.src.Remember(shard, o.found)
		o.found = o.found[:0]
	}
}

// untrainedLabels returns the untrained ones among the labels of tokens: all but the first.
func untrainedLabels(ids []uint32) uint32 { return tokenid.CountUntrained(ids[min(1, len(ids)):]) }

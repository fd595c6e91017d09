package kept

import "millrace/sources/facts/index"

// Lengths remembers the tokens of each record of one shard under one transform, across runs and processes. It is safe
// for concurrent use.
type Lengths interface {
	Get(record uint64) (tokens uint32, ok bool)
	Put(record uint64, tokens uint32)
	Sum(record uint64) (sum uint32, ok bool) // the checksum of its tokens
	PutSum(record uint64, sum uint32)
	PutBad(record uint64, limit int64)
	Bad(record uint64, limit int64) bool
}

var _ Lengths = (*index.Lengths)(nil)

// Length is the length of a record that was just decoded.
type Length struct {
	Record  uint64
	Tokens  uint32
	Sum     uint32 // checksum of the tokens; valid if Summed
	Summed  bool
	Refused uint32 // bits of the filters that refuse the record
	// Untrained are the labels that are left out of the loss, in sources with untrained tokens.
	Untrained uint32
	Bad       bool // the record cannot be decoded and has no length
}

// putIn enters the length. A record that is longer than the limit in bytes is bad under that limit alone.
func (l *Length) putIn(st Lengths, limit int64) {
	if l.Bad {
		st.PutBad(l.Record, limit)
		return
	}
	st.Put(l.Record, l.Tokens)
	if l.Summed {
		st.PutSum(l.Record, l.Sum)
	}
	if x, ok := st.(*Labelled); ok {
		x.untrained.Put(l.Record, l.Untrained)
	}
	if f := Filters(st); f != nil {
		f.answers.Put(l.Record, l.Refused)
	}
}

// Filters returns the store with the answers of filters, nil if the source has none.
func Filters(st Lengths) *Filtered {
	if x, ok := st.(*Labelled); ok {
		st = x.Lengths
	}
	f, _ := st.(*Filtered)
	return f
}

// Labelled is the length store of a source with untrained tokens. Beside the lengths it has the untrained labels of
// each record. A record is known if both are: earlier releases kept lengths alone.
type Labelled struct {
	Lengths
	untrained Lengths // instead of tokens, the labels that are left out of the loss
}

// Get implements Lengths.
func (x *Labelled) Get(record uint64) (tokens uint32, ok bool) {
	if _, ok := x.untrained.Get(record); !ok {
		return 0, false
	}
	return x.Lengths.Get(record)
}

// Untrained returns the labels of a record that are left out of the loss.
func (x *Labelled) Untrained(record uint64) (labels uint32, ok bool) { return x.untrained.Get(record) }

// PutBad implements Lengths. Earlier releases kept the lengths of documents without a label, which are bad.
func (x *Labelled) PutBad(record uint64, limit int64) {
	x.untrained.PutBad(record, limit)
	x.Lengths.PutBad(record, limit)
}

// Bad implements Lengths.
func (x *Labelled) Bad(record uint64, limit int64) bool {
	return x.untrained.Bad(record, limit) || x.Lengths.Bad(record, limit)
}

// Filtered is the length store of a source with filters. Beside the lengths, which all sources of these files share, it
// has the answers of these filters. A record is known if both are.
type Filtered struct {
	Lengths
	answers Lengths // instead of tokens, the bits of the filters that refuse the record
}

// Get implements Lengths.
func (f *Filtered) Get(record uint64) (tokens uint32, ok bool) {
	if _, ok := f.answers.Get(record); !ok {
		return 0, false
	}
	return f.Lengths.Get(record)
}

// Refused returns the bits of the filters that refuse a record.
func (f *Filtered) Refused(record uint64) (bits uint32, ok bool) { return f.answers.Get(record) }

// PutBad implements Lengths. A record may be bad for the filters alone, so only their answers note it.
func (f *Filtered) PutBad(record uint64, limit int64) { f.answers.PutBad(record, limit) }

// Bad implements Lengths.
func (f *Filtered) Bad(record uint64, limit int64) bool {
	return f.answers.Bad(record, limit) || f.Lengths.Bad(record, limit)
}

package sources

import (
	"errors"

	"millrace"
)

// filteredLengths is the length store of a source with filters: beside the lengths, which all sources of these files
// share, the answers of just these filters. A record is known where both are. Safe for concurrent use.
type filteredLengths struct {
	lengthStore
	answers lengthStore // in place of tokens, the bits of the filters that refuse the record
}

// Get implements lengthStore.
func (l *filteredLengths) Get(record uint64) (tokens uint32, ok bool) {
	if _, ok := l.answers.Get(record); !ok {
		return 0, false
	}
	return l.lengthStore.Get(record)
}

// PutBad implements lengthStore. That a record is bad may be the filters' word alone.
func (l *filteredLengths) PutBad(record uint64, limit int64) { l.answers.PutBad(record, limit) }

// Bad implements lengthStore.
func (l *filteredLengths) Bad(record uint64, limit int64) bool {
	return l.answers.Bad(record, limit) || l.lengthStore.Bad(record, limit)
}

// Close implements lengthStore.
func (l *filteredLengths) Close() error { return errors.Join(l.lengthStore.Close(), l.answers.Close()) }

// filterFingerprint identifies what decides the answers for a record apart from its bytes.
func (s Spec) filterFingerprint() millrace.Digest {
	transform := s.fingerprint()
	in := append([]byte("millrace filters 1"), transform[:]...)
	for _, text := range s.Filters.Texts() {
		in = appendText(in, text)
	}
	return digest128(in)
}

// refusals answers for records whose length is known; nil where the source has no filters. Of formats of tokens the
// length is all that a filter can ask for, so that it is asked again.
func (v *LengthView) refusals(shard uint32) func(record uint64, tokens uint32) (bits uint32, ok bool) {
	set := v.src.spec.Filters
	if set == nil {
		return nil
	}
	if v.src.transform.tokenizer == nil {
		judge := set.Judge()
		return func(_ uint64, tokens uint32) (uint32, bool) {
			bits, err := judge.Refused(nil, int(tokens), 0)
			return uint32(bits), err == nil
		}
	}
	if st, ok := v.src.lengthsOf(shard).(*filteredLengths); ok {
		return func(record uint64, _ uint32) (uint32, bool) { return st.answers.Get(record) }
	}
	return func(uint64, uint32) (uint32, bool) { return 0, false }
}

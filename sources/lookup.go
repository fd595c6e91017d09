package sources

import (
	"context"

	"millrace/sources/facts/kept"
	"millrace/sources/read/filter"
)

// lengthReader is the access to the lengths of one source.
type lengthReader struct {
	kept       *kept.Store
	shards     *shardSet
	filters    *filter.Set // nil if there are none
	isOfTokens bool        // records are tokens, not text
	limits     Limits
}

// LengthView looks up the lengths of records of many shards without reading the records: from the format if it has
// them, else from the length store. It is not safe for concurrent use. The caller closes it.
type LengthView struct {
	from *lengthReader
	get  map[uint32]func(record uint64) (uint32, bool)
	open []*OpenShard
}

func (r *lengthReader) view() *LengthView {
	return &LengthView{from: r, get: make(map[uint32]func(uint64) (uint32, bool))}
}

// KnownLengths looks up the records of one shard. It is valid until its view is closed.
type KnownLengths struct {
	// Tokens returns the tokens of a record; ok is false if the record must be read to find them.
	Tokens func(record uint64) (tokens uint32, ok bool)
	// Refused returns the bits of the filters that refuse a record of this length; nil if the source has no filters.
	Refused func(record uint64, tokens uint32) (bits uint32, ok bool)
	// Untrained returns the labels of a record that are left out of the loss; nil if the source has no untrained
	// tokens.
	Untrained func(record uint64) (labels uint32, ok bool)
	// Patches returns the image patches of a record; nil if the shard has none.
	Patches func(record uint64) uint32
}

// Of returns the lookup for one shard.
func (v *LengthView) Of(ctx context.Context, shard uint32) (KnownLengths, error) {
	get, err := v.of(ctx, shard)
	if err != nil {
		return KnownLengths{}, err
	}
	return KnownLengths{Tokens: get, Refused: v.refusals(shard), Untrained: v.untrained(shard),
		Patches: v.patches(shard)}, nil
}

func noLength(uint64) (uint32, bool) { return 0, false }

// of returns the lookup of tokens in one shard.
func (v *LengthView) of(ctx context.Context, shard uint32) (func(uint64) (uint32, bool), error) {
	if get, ok := v.get[shard]; ok {
		return get, nil
	}
	get := noLength
	if v.from.isOfTokens {
		o, err := v.from.shards.acquire(ctx, shard)
		if err != nil {
			return nil, err
		}
		v.open = append(v.open, o)
		if l := o.Abilities().Lengths; l != nil {
			get = l.Length
		}
	} else if st := v.from.kept.Known(shard); st != nil {
		get = st.Get
	}
	v.get[shard] = get
	return get, nil
}

// sum adds the known lengths of a shard to st. A record known to be bad counts as known, with no tokens. In formats of
// tokens the file's own index also counts records that a later read may find to be bad. piece is the number of tokens
// of a piece; 0: documents are read whole.
func (v *LengthView) sum(ctx context.Context, shard uint32, count uint64, piece uint32, st *Stats) error {
	get, err := v.of(ctx, shard)
	if err != nil {
		return err
	}
	otherwise, refusals, untrained := v.otherwise(shard), v.refusals(shard), v.untrained(shard)
	if runs := v.runs(shard); runs != nil && refusals == nil {
		return runs.LengthRuns(func(tokens uint32, records uint64) error {
			st.add(tokens, records, piece)
			return nil
		})
	}
	for r := range count {
		n, ok := get(r)
		if !ok {
			n, ok = otherwise(r)
		}
		if !ok {
			continue
		}
		if refusals != nil {
			bits, ok := refusals(r, n)
			if ok && bits&filter.TooLong != 0 {
				st.TooLong++
			}
			if ok && bits&filter.Own != 0 {
				st.Known++
				if bits&filter.Skipped != 0 {
					st.Skipped++
				} else {
					st.Refused++
				}
				continue
			}
		}
		st.add(n, 1, piece)
		if untrained != nil && n > 0 {
			labels, _ := untrained(r)
			st.Trained += uint64(n - 1 - labels)
		}
	}
	return nil
}

// add adds records of one known length, of which none is refused.
func (st *Stats) add(tokens uint32, records uint64, piece uint32) {
	if records == 0 {
		return
	}
	pieces := uint64(1)
	if piece > 0 && tokens > piece {
		pieces += uint64(tokens-1) / uint64(piece)
	}
	st.Known += records
	st.Tokens += records * uint64(tokens)
	st.Longest = max(st.Longest, tokens)
	st.Pieces += records * pieces
}

// runs returns the runs of equal lengths of a shard that the view has opened, nil if its file has none.
func (v *LengthView) runs(shard uint32) RunLengther {
	for _, o := range v.open {
		if o.index == shard {
			return o.Abilities().Runs
		}
	}
	return nil
}

// otherwise returns the lookup for records without a known length: ok means that the record is bad, or that the
// format's own index counts it.
func (v *LengthView) otherwise(shard uint32) func(record uint64) (uint32, bool) {
	if v.from.isOfTokens {
		for _, o := range v.open {
			if sizer := o.Abilities().Sizes; sizer != nil && o.index == shard {
				return func(r uint64) (uint32, bool) { return sizer.Size(r), true }
			}
		}
		return noLength
	}
	st := v.from.kept.Known(shard)
	if st == nil {
		return noLength
	}
	return func(r uint64) (uint32, bool) { return 0, st.Bad(r, v.from.limits.SampleBytes) }
}

// refusals returns the answers of filters for records of known length, nil if the source has no filters. In formats of
// tokens a filter can only ask for the length, so it is asked again.
func (v *LengthView) refusals(shard uint32) func(record uint64, tokens uint32) (bits uint32, ok bool) {
	set := v.from.filters
	if set == nil {
		return nil
	}
	if v.from.isOfTokens {
		judge := set.Judge()
		return func(_ uint64, tokens uint32) (uint32, bool) {
			bits, err := judge.Refused(nil, int(tokens), 0)
			return bits, err == nil
		}
	}
	if st := kept.Filters(v.from.kept.Known(shard)); st != nil {
		return func(record uint64, _ uint32) (uint32, bool) { return st.Refused(record) }
	}
	return func(uint64, uint32) (uint32, bool) { return 0, false }
}

// untrained returns the lookup of untrained labels, nil if the source has no untrained tokens or keeps no lengths.
func (v *LengthView) untrained(shard uint32) func(record uint64) (labels uint32, ok bool) {
	if st, ok := v.from.kept.Known(shard).(*kept.Labelled); ok {
		return st.Untrained
	}
	return nil
}

// patches returns the lookup of patches in a shard that the view has opened, nil if it has none.
func (v *LengthView) patches(shard uint32) func(record uint64) uint32 {
	for _, o := range v.open {
		if p := o.Abilities().Patches; p != nil && o.index == shard {
			return p.Patches
		}
	}
	return nil
}

// Close releases the shards that the view has opened.
func (v *LengthView) Close() {
	for _, o := range v.open {
		v.from.shards.release(o)
	}
	v.open = nil
}

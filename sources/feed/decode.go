package feed

import (
	"context"
	"fmt"
	"slices"

	"millrace"
	"millrace/sources"
	"millrace/sources/filter"
)

// mostScratch bounds the tokens of scratch that a decoder keeps.
const mostScratch = 4 << 20

// decoder does the actions of one goroutine: it looks up ids, reads records and makes their tokens.
type decoder struct {
	feed *Feed

	// of the part being made
	span    *span
	part    uint32
	before  int                   // tokens in buf before the record's
	buf     []uint32              // the part's tokens; where only lengths are asked for, the last record's
	lengths []sources.FoundLength // found in this part, of shard
	shard   uint32
	check   sources.DocumentCheck // of shard

	record sources.Record  // reused, so that none is garbage
	slots  []uint32        // likewise
	rec    *sources.Record // being tokenised
	bits   uint64          // of the filters that refuse it
	judges *filter.Judge
	act    func() error
	what   func() string
	placed func(shard uint32, slots []uint32) error // nil but aside: a record's tokens are in buf, or its slots are rejects
}

func newDecoder(f *Feed) *decoder {
	m := &decoder{feed: f, slots: make([]uint32, 1)}
	// Closures for the fence are made once: one a record would be garbage.
	m.act = func() (err error) {
		m.feed.cfg.Fail.Hit("loader/decode/before")
		m.buf, err = m.feed.src.Document(m.buf, m.rec, m.feed.cfg.Progress)
		m.feed.cfg.Progress()
		if err == nil {
			err = m.judge(len(m.buf) - m.before)
		}
		return err
	}
	m.what = func() string { return m.feed.src.SampleName(m.shard, m.rec.Number) }
	return m
}

// gather looks up the ids of a span, and its lengths where they are remembered.
func (f *Feed) gather(p *span) action {
	p.stage = gathering
	return func(ctx context.Context, _ *decoder) error {
		slots := make([]slot, p.hi-p.lo)
		var refused []uint32
		if f.src.Filters() != nil {
			refused = make([]uint32, len(slots))
		}
		if p.block != nil {
			f.blockIDs(p, slots)
		} else {
			f.globalIDs(p, slots)
		}
		tokens, patches, known, err := f.lookUp(ctx, slots, refused)
		if err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		p.slots, p.refused, p.patches, p.stage, p.known = slots, refused, patches, gathered, known
		if known {
			p.tokens = tokens
			f.sizes.learn(p)
		}
		f.idle.Broadcast()
		f.news.Broadcast()
		return nil
	}
}

// lookUp fills in remembered lengths, and where there are filters what they say; known only if all are. tokens are
// those to be kept.
func (f *Feed) lookUp(ctx context.Context, slots []slot, refused []uint32) (tokens int64, patches []uint32, known bool, err error) {
	view := f.src.Lengths()
	defer view.Close()
	var lengths sources.KnownLengths
	for i := range slots {
		s := &slots[i]
		if i == 0 || s.shard != slots[i-1].shard {
			if lengths, err = view.Of(ctx, s.shard); err != nil {
				return 0, nil, false, err
			}
		}
		n, ok := lengths.Tokens(s.record)
		if !ok {
			return 0, nil, false, nil
		}
		s.length = n
		if lengths.Patches != nil {
			if patches == nil {
				patches = make([]uint32, len(slots))
			}
			patches[i] = lengths.Patches(s.record)
		}
		if refused != nil {
			if refused[i], ok = lengths.Refused(s.record, n); !ok {
				return 0, nil, false, nil
			}
			if refused[i]&filter.Own != 0 {
				continue
			}
		}
		tokens += int64(n)
	}
	return tokens, patches, true, nil
}

// open begins a part of a span's making.
func (m *decoder) open(p *span, part uint32) {
	m.span, m.part = p, part
	m.buf, m.lengths = m.buf[:0], m.lengths[:0]
	m.check = m.feed.src.DocumentCheck()
}

// finish ends a part; the last part of a making completes it.
func (m *decoder) finish() {
	m.note()
	f, p := m.feed, m.span
	var tokens []uint32
	if p.keep {
		tokens = slices.Clone(m.buf)
	}
	if cap(m.buf) > mostScratch {
		m.buf = nil
	}
	f.mu.Lock()
	if p.keep {
		p.parts[m.part] = tokens
	}
	p.left--
	over := p.left == 0 && p.counted
	if p.left == 0 {
		p.counted = false
		f.complete(p)
	}
	quota := f.quota
	f.mu.Unlock()
	quota.WakeShort()
	if over {
		quota.Return()
	}
}

// note remembers the lengths found in a part.
func (m *decoder) note() { m.feed.src.Remember(m.shard, m.lengths) }

// complete ends a making; the mutex is held.
func (f *Feed) complete(p *span) {
	p.stage = gathered
	if !p.known {
		p.known = true
		for i := range p.slots {
			if !p.dropped(uint32(i)) {
				p.tokens += int64(p.slots[i].length)
			}
		}
		f.sizes.learn(p)
	}
	if p.keep {
		p.held = true
		if !p.gone {
			f.edges.tail = max(f.edges.tail, f.indexOf(p)+1)
		}
		var size int64
		for _, a := range p.parts {
			size += 4 * int64(cap(a))
		}
		f.quota.Force(size - p.charge)
		p.charge = size
	}
	if p.gone && p.held {
		f.drop(p)
	}
	if p.block != nil {
		f.spareText(p.block)
	}
	f.idle.Broadcast()
	f.news.Broadcast()
}

// place makes the tokens of one record and files them under all its slots. An error is the feed's end; what is wrong
// with the record alone becomes a reject or a fault.
func (m *decoder) place(shard uint32, r *sources.Record, slots []uint32) error {
	if err := m.make(shard, r, slots); err != nil {
		return err
	}
	if m.placed != nil {
		return m.placed(shard, slots)
	}
	return nil
}

func (m *decoder) make(shard uint32, r *sources.Record, slots []uint32) error {
	if m.shard != shard {
		m.feed.src.Remember(m.shard, m.lengths)
		m.shard, m.lengths = shard, m.lengths[:0]
	}
	if r.Err != nil {
		m.refuse(shard, r, slots, r.Err)
		return nil
	}
	if !m.span.keep {
		m.buf = m.buf[:0]
	}
	m.rec = r
	m.before = len(m.buf)
	before := m.before
	err := sources.Fence(millrace.ErrBadSample, m.what, m.act)
	if err != nil {
		m.buf = m.buf[:before]
		m.refuse(shard, r, slots, err)
		return nil
	}
	n := uint32(len(m.buf) - before)
	found := sources.FoundLength{Record: r.Number, Tokens: n, Refused: uint32(m.bits)}
	if err := m.check.Compare(shard, &found, m.buf[before:]); err != nil {
		return err
	}
	if !m.span.known {
		m.lengths = append(m.lengths, found)
	}
	kept := m.span.refused == nil
	for _, i := range slots {
		if m.span.refused != nil && !m.span.known {
			m.span.refused[i] = uint32(m.bits)
		}
		kept = kept || !m.span.dropped(i)
		if err := m.file(i, r, uint32(before), n); err != nil {
			return err
		}
	}
	if !kept { // what the source's own filter refuses is never asked for
		m.buf = m.buf[:before]
	}
	return nil
}

// file notes where a slot's tokens lie. Makers of one span write different slots.
func (m *decoder) file(i uint32, r *sources.Record, off, n uint32) error {
	s := &m.span.slots[i]
	switch {
	case !m.span.known:
		s.length = n
	case s.length != n && !m.rejected(i):
		if err := m.feed.src.LengthChanged(s.shard, s.record, s.length, n); err != nil {
			return err
		}
		m.fault(i, r, lengthChanged(s.length, n))
		return nil
	}
	s.part, s.off = m.part, off
	return nil
}

func lengthChanged(was, is uint32) string {
	return fmt.Sprintf("it was offered with %d tokens and has %d: the file or the length store changed", was, is)
}

// rejected tells whether a slot was offered as a reject: its length is 0 whatever it holds now.
func (m *decoder) rejected(i uint32) bool {
	m.feed.mu.Lock()
	defer m.feed.mu.Unlock()
	_, ok := m.span.rejects[i]
	return ok
}

// refuse files a record that has no tokens: a reject before its length is known, a fault after.
func (m *decoder) refuse(shard uint32, r *sources.Record, slots []uint32, cause error) {
	reason := cause.Error()
	if !m.span.known {
		m.lengths = append(m.lengths, sources.FoundLength{Record: r.Number, Bad: true})
	}
	for _, i := range slots {
		if m.span.known {
			if !m.rejected(i) {
				m.fault(i, r, reason)
			}
			continue
		}
		q := m.quarantine(shard, r, reason)
		m.feed.mu.Lock()
		if m.span.rejects == nil {
			m.span.rejects = make(map[uint32]millrace.Quarantine)
		}
		m.span.rejects[i] = q
		m.feed.mu.Unlock()
		m.span.slots[i].length = 0
		if m.span.refused != nil {
			m.span.refused[i] = 0
		}
	}
}

func (m *decoder) fault(i uint32, r *sources.Record, reason string) {
	q := m.quarantine(m.span.slots[i].shard, r, reason)
	m.feed.mu.Lock()
	defer m.feed.mu.Unlock()
	if m.span.faults == nil {
		m.span.faults = make(map[uint32]millrace.Quarantine)
	}
	m.span.faults[i] = q
}

func (m *decoder) quarantine(shard uint32, r *sources.Record, reason string) millrace.Quarantine {
	src := m.feed.src
	return millrace.Quarantine{Source: src.Name(), ID: src.SampleName(shard, r.Number), Offset: r.Offset, Reason: reason}
}

// entry is a slot of a span in reading order.
type entry struct {
	record uint64
	shard  uint32
	slot   uint32
}

// byPlace returns a span's slots in the order in which they lie in the files.
func byPlace(slots []slot) []entry {
	entries := make([]entry, len(slots))
	for i, s := range slots {
		entries[i] = entry{s.record, s.shard, uint32(i)}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		switch {
		case a.shard != b.shard:
			return int(a.shard) - int(b.shard)
		case a.record != b.record && a.record < b.record:
			return -1
		case a.record != b.record:
			return 1
		}
		return int(a.slot) - int(b.slot)
	})
	return entries
}

// judge asks the filters about the record just tokenised.
func (m *decoder) judge(tokens int) (err error) {
	set := m.feed.src.Filters()
	if set == nil || m.span.known {
		return nil
	}
	if m.judges == nil {
		m.judges = set.Judge()
	}
	m.bits, err = m.judges.Refused(m.rec.Others, tokens, len(m.rec.Text))
	return err
}

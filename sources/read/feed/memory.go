package feed

import (
	"slices"

	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
)

// tokenBytes is the charge of a token that is held. It takes less if ids are small: limits bound the read-ahead, which
// does not depend on the vocabulary.
const tokenBytes = 4

// fieldsBytes is the memory of a document's passed-through fields beside their text.
const fieldsBytes = 64

// memory holds a feed's tokens and block texts, and charges them to the feed's quota. The feed's mutex guards it.
type memory struct {
	queue *queue
	quota *budget.Quota // nil before the feed runs, and after
	texts []*block      // blocks whose text is held
	store decode.Store  // of the process
	large *budget.Large // of the process
}

// room charges n bytes for a span. If the budget refuses, it first drops texts, and tokens that are needed later. The
// bytes of a span that must be made are charged in any case.
func (m *memory) room(n int64, p *span, must bool) bool {
	for !m.quota.Take(n) {
		if m.dropOneText(p) || m.evict(p, must) {
			continue
		}
		if !must {
			return false
		}
		m.quota.Force(n)
		return true
	}
	return true
}

// roomForText charges n bytes in any case for a text that a span needs. If the budget refuses, it first drops other
// texts.
func (m *memory) roomForText(n int64, p *span) {
	for !m.quota.Take(n) {
		if !m.dropOneText(p) {
			m.quota.Force(n)
			return
		}
	}
}

// evict drops the tokens of the newest span behind p. If p must be made, it may also drop a span before p, but not the
// first. It keeps spans that a fetch reads or waits for, and those without tokens.
func (m *memory) evict(p *span, must bool) bool {
	for _, other := range slices.Backward(m.queue.heldUntil()) {
		if other.lo <= p.lo && !must || other == m.queue.spans[0] {
			return false
		}
		if other != p && other.held && other.charge > 0 && other.pins == 0 && other.demand == 0 {
			m.drop(other)
			return true
		}
	}
	return false
}

// hold takes the tokens of a finished making and corrects its charge.
func (m *memory) hold(p *span) {
	p.held = true
	if !p.gone {
		m.queue.noteHeld(p)
	}
	var size int64
	for i := range p.parts {
		size += tokenBytes * int64(p.parts[i].Len())
	}
	for _, fields := range p.fields {
		size += fieldsBytes + int64(len(fields))
	}
	m.quota.Force(size - p.charge)
	p.charge = size
}

// retire takes a released span out of use.
func (m *memory) retire(p *span) {
	p.gone = true
	if p.pins == 0 && p.held {
		m.drop(p)
	}
	if p.block != nil {
		m.dropIdleText(p.block)
	}
}

// unpin ends one fetch's reading of a span, and reports whether that freed its memory.
func (m *memory) unpin(p *span) bool {
	p.pins--
	frees := p.gone && p.pins == 0 && p.held && m.quota != nil
	if frees {
		m.drop(p)
	}
	return frees
}

// drop frees a span's tokens.
func (m *memory) drop(p *span) {
	p.parts, p.fields, p.held = nil, nil, false
	if !p.gone {
		m.queue.noteDropped(p)
	}
	m.quota.Force(-p.charge)
	p.charge = 0
}

// holdText takes the text of a block, for which charged bytes were charged.
func (m *memory) holdText(b *block, text *decode.Text, charged int64) {
	b.text, b.charge = text, text.Size()
	m.quota.Force(b.charge - charged)
	m.texts = append(m.texts, b)
}

// dropIdleText drops a block's text if no span needs it.
func (m *memory) dropIdleText(b *block) {
	if b.text != nil && b.isIdle(false) {
		m.dropText(b)
	}
}

// dropOneText drops one text that no unknown length needs. It keeps the texts of p and of the first span, and those in
// the file, which take little memory.
func (m *memory) dropOneText(p *span) bool {
	for _, b := range m.texts {
		if !b.text.IsInFile() && b != p.block && b != m.queue.spans[0].block && b.isIdle(true) {
			m.dropText(b)
			return true
		}
	}
	return false
}

// discard gives back the room of a text that is not held; nil has none.
func (m *memory) discard(text *decode.Text) {
	if text != nil {
		text.Recycle(m.store)
	}
}

// clear gives back the room of all texts. After it there are no charges.
func (m *memory) clear() {
	for _, b := range m.texts {
		b.text.Recycle(m.store)
	}
	m.texts, m.quota = nil, nil
}

func (m *memory) dropText(b *block) {
	b.text.Recycle(m.store)
	m.quota.Force(-b.charge)
	b.text, b.charge = nil, 0
	m.texts = slices.DeleteFunc(m.texts, func(other *block) bool { return other == b })
}

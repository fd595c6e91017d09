// Package recent keeps the newest results of a process's random-access reads.
package recent

import (
	"container/list"
	"sync"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/order"
)

// Store keeps the documents and the text of one block that the random-access reads of a process made last. It takes
// only room that the budget has to spare, for any number of feeds. It is safe for concurrent use. Only the lock of the
// file for texts is below its own.
//
// Invariant: documents take at most a quarter of the budget's limit, and with the text at most the room that the
// budget's feeds leave.
type Store struct {
	budget *budget.Budget
	texts  decode.Store // holds the text

	mu        sync.Mutex
	documents map[Holder]map[millrace.Ordinal]*list.Element
	byAge     list.List // of *entry, oldest first
	size      int64     // bytes of their tokens

	text *decode.Text // shared with those who read it; nil: none
	src  *sources.Source
	of   millrace.SeekPoint // of the block
}

// Document is the content of one ordinal: a whole document, or a piece and the token after it.
type Document struct {
	Place  order.Place
	Tokens []uint32
	Fields string // passed-through ones of its record, as JSON
}

// Packed is a document that is kept. It never changes.
type Packed struct {
	place  order.Place
	tokens decode.Tokens
	fields string
}

// Document returns the document, with its tokens behind those of scratch.
func (p *Packed) Document(scratch []uint32) Document {
	return Document{Place: p.place, Tokens: p.tokens.Append(scratch, 0, p.tokens.Len()), Fields: p.fields}
}

// Holder names the feed of a document. It is a pointer.
type Holder any

// entry is a document with its place in a Store.
type entry struct {
	Packed
	holder  Holder
	ordinal millrace.Ordinal
}

func (d *entry) size() int64 { return size(d.tokens.Len(), d.fields) }

// size returns the charge of a document: that of each token is 4 bytes, as in spans.
func size(tokens int, fields string) int64 {
	return documentBytes + 4*int64(tokens) + int64(len(fields))
}

// documentBytes is the memory of a document beside its tokens.
const documentBytes = 200

// New returns an empty store that takes the room which the budget's feeds leave. A budget has one. texts holds all
// texts.
func New(b *budget.Budget, texts decode.Store) *Store {
	r := &Store{budget: b, texts: texts, documents: make(map[Holder]map[millrace.Ordinal]*list.Element)}
	b.SetSpare(r)
	return r
}

var _ budget.Spare = (*Store)(nil)

// Shrink implements budget.Spare. It drops the text first: that is made again as fast as the next one.
func (r *Store) Shrink(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.text != nil && r.size+r.text.Size() > bytes {
		r.dropText()
	}
	r.shrinkDocuments(bytes)
}

// shrinkDocuments drops the oldest documents beyond a number of bytes; mu is held.
func (r *Store) shrinkDocuments(bytes int64) {
	for r.size > bytes {
		r.forget(r.byAge.Front())
	}
}

// forget drops a document; mu is held.
func (r *Store) forget(e *list.Element) {
	d := r.byAge.Remove(e).(*entry)
	r.size -= d.size()
	of := r.documents[d.holder]
	if delete(of, d.ordinal); len(of) == 0 {
		delete(r.documents, d.holder)
	}
}

// Keeps reports whether a document of `tokens` tokens is small enough to be kept.
func (r *Store) Keeps(tokens int) bool { return 4*int64(tokens) <= r.budget.Limit()/32 }

// Put keeps a copy of a document of a holder, in the place of older ones or of the text.
func (r *Store) Put(h Holder, n millrace.Ordinal, d Document) {
	free := r.budget.Free()
	room := min(free, r.budget.Limit()/4)
	bytes := size(len(d.Tokens), d.Fields)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.documents[h][n]; ok || bytes > room {
		return
	}
	one := &entry{Packed{d.Place, decode.Pack(d.Tokens), d.Fields}, h, n}
	r.shrinkDocuments(room - bytes)
	if r.text != nil && r.size+bytes+r.text.Size() > free {
		r.dropText()
	}
	if r.documents[h] == nil {
		r.documents[h] = make(map[millrace.Ordinal]*list.Element)
	}
	r.documents[h][n] = r.byAge.PushBack(one)
	r.size += bytes
}

// Get returns a document of a holder.
func (r *Store) Get(h Holder, n millrace.Ordinal) (d Packed, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.documents[h][n]
	if !ok {
		return d, false
	}
	return e.Value.(*entry).Packed, true
}

// Release drops the documents of a holder below an ordinal.
func (r *Store) Release(h Holder, below millrace.Ordinal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, e := range r.documents[h] {
		if n < below {
			r.forget(e)
		}
	}
}

// SetText replaces the text, and shares the new one if there is room for it.
func (r *Store) SetText(src *sources.Source, of millrace.SeekPoint, text *decode.Text) {
	free := r.budget.Free()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropText()
	if r.size+text.Size() <= free {
		r.text, r.src, r.of = text.Share(), src, of
	}
}

// dropText ends the use of the text; mu is held.
func (r *Store) dropText() {
	if r.text != nil {
		r.text.Recycle(r.texts)
	}
	r.text, r.src = nil, nil
}

// TextOf shares the text of a block of a source, or returns nil.
func (r *Store) TextOf(src *sources.Source, of millrace.SeekPoint) *decode.Text {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.text == nil || r.src != src || r.of != of {
		return nil
	}
	return r.text.Share()
}

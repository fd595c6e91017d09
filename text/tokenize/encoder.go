package tokenize

import (
	"unsafe"

	"millrace/text/tokenize/internal/normal"
	"millrace/text/tokenize/internal/pipeline"
	"millrace/text/tokenize/internal/pretokenize"
	"millrace/text/tokenize/internal/short"
	"millrace/text/tokenize/internal/split"
)

// batch is the number of pieces that are found, then looked up, at a time.
const batch = split.Batch

// Encoder encodes texts one after another. It remembers earlier pieces in bounded memory and has scratch, so it serves
// one goroutine at a time. The remembered pieces change its speed, never the ids.
type Encoder struct {
	short    short.Pieces
	long     longPieces
	room     room
	encoding *Encoding
	merger   merger
	ends     split.Ends
	asked    [batch]short.Query
	found    [batch * short.Tokens]uint32
	coder    coder
	normal   []byte // the last text in normal form, of at most normalMax bytes
}

// normalMax bounds the memory that an encoder keeps for normalised texts.
const normalMax = 1 << 20

// NewEncoder returns an encoder for one goroutine. It starts no goroutine and needs no Close.
func (e *Encoding) NewEncoder() *Encoder {
	enc := &Encoder{encoding: e}
	enc.coder = byteLevel{enc}
	if e.stages != nil {
		enc.coder = staged{byteLevel{enc}, e.stages.NewCursor()}
	}
	if e.prefixed {
		p := &prefixed{byteLevel: byteLevel{enc}, coder: enc.coder}
		if e.before != nil {
			p.cursor = e.before.NewCursor()
		}
		enc.coder = p
	}
	enc.coder = e.withRewriters(enc.coder)
	if e.model != nil {
		enc.coder = e.model.newCoder(enc)
	}
	if !enc.coder.remembers() {
		return enc
	}
	enc.merger.table = e.merges
	enc.room = room{most: doublings(e.lent.bytes - int64(unsafe.Sizeof(Encoder{})))}
	enc.forget()
	return enc
}

// forget makes the encoder remember pieces anew, in the memory of its room.
func (enc *Encoder) forget() {
	n := enc.room.doublings
	enc.short, enc.long = short.New(leastSets<<n), newLongPieces(n)
}

// Append appends the token ids of text to dst and returns it, as the built-in append does. It allocates only if dst
// lacks room, or if text has to be normalised. It does not recognise special tokens: "<|endoftext|>" in the text is
// text. The text should be valid UTF-8. For other texts the ids also spell the bytes, but the pieces are unspecified.
func (enc *Encoder) Append(dst []uint32, text []byte) []uint32 {
	if enc.encoding.added != nil {
		return enc.appendAround(dst, text)
	}
	return enc.coder.append(dst, enc.coder.normalise(text), true)
}

// byteLevel encodes by byte-level BPE.
type byteLevel struct{ *Encoder }

func (byteLevel) remembers() bool { return true }

func (enc byteLevel) merge(dst []uint32, piece []byte) []uint32 { return enc.merger.merge(dst, piece) }

func (enc byteLevel) append(dst []uint32, text []byte, _ bool) []uint32 {
	e := enc.encoding
	for pos := 0; pos < len(text); {
		n := e.splitter.Pieces(text, pos, &enc.ends)
		dst = enc.appendPieces(dst, text, pos, enc.ends[:n])
		enc.merger.stride.went(enc.ends[n-1] - pos)
		pos = enc.ends[n-1]
	}
	return dst
}

func (enc byteLevel) normalise(text []byte) []byte {
	if enc.encoding.normal == nil {
		return text
	}
	n := normal.Span(text)
	if n == len(text) {
		return text
	}
	out := enc.encoding.normal(append(enc.normal[:0], text[:n]...), text[n:])
	if cap(out) <= normalMax {
		enc.normal = out
	}
	return out
}

// rewritten encodes texts that the normalizers of a tokenizer.json rewrite first.
type rewritten struct {
	coder
	by      pipeline.Normalizers
	scratch pipeline.Scratch
}

// withRewriters returns a coder that rewrites texts first, if the encoding does.
func (e *Encoding) withRewriters(c coder) coder {
	if e.rewriters == nil {
		return c
	}
	return &rewritten{coder: c, by: e.rewriters}
}

func (c *rewritten) normalise(text []byte) []byte { return c.by.Normalize(text, &c.scratch) }

// staged encodes by byte-level BPE the pieces that stages find.
type staged struct {
	byteLevel
	cursor *pretokenize.Cursor
}

func (enc staged) append(dst []uint32, text []byte, _ bool) []uint32 {
	enc.cursor.Reset()
	for pos := 0; pos < len(text); {
		n := enc.cursor.Pieces(text, pos, enc.ends[:])
		dst = enc.appendPieces(dst, text, pos, enc.ends[:n])
		enc.merger.stride.went(enc.ends[n-1] - pos)
		pos = enc.ends[n-1]
	}
	return dst
}

// prefixed encodes by byte-level BPE the parts of a text, each with a space before it unless it begins with one.
type prefixed struct {
	byteLevel
	cursor *pretokenize.Cursor // finds the parts; nil: the text is the part
	coder  coder               // encodes a part
	ends   [batch]int
	part   []byte // the last part with its space, of at most normalMax bytes
}

func (enc *prefixed) append(dst []uint32, text []byte, _ bool) []uint32 {
	if enc.cursor == nil {
		return enc.appendPart(dst, text)
	}
	enc.cursor.Reset()
	for pos := 0; pos < len(text); {
		for _, end := range enc.ends[:enc.cursor.Pieces(text, pos, enc.ends[:])] {
			dst = enc.appendPart(dst, text[pos:end])
			pos = end
		}
	}
	return dst
}

func (enc *prefixed) appendPart(dst []uint32, part []byte) []uint32 {
	if len(part) > 0 && part[0] != ' ' {
		part = append(append(enc.part[:0], ' '), part...)
		if cap(part) <= normalMax {
			enc.part = part
		}
	}
	return enc.coder.append(dst, part, false)
}

// appendPieces appends the tokens of the pieces of text from pos on that end at ends. Tokens of short pieces gather in
// enc.found.
func (enc *Encoder) appendPieces(dst []uint32, text []byte, pos int, ends []int) []uint32 {
	asked := enc.asked[:len(ends)]
	enc.short.Ask(asked, text, pos, ends)
	n := 0
	for i := 0; ; i++ {
		if i, n = enc.short.Recall(asked, i, enc.found[:], n); i == len(ends) {
			return append(dst, enc.found[:n]...)
		}
		if i > 0 {
			pos = ends[i-1]
		}
		dst, n = append(dst, enc.found[:n]...), 0
		piece := text[pos:ends[i]]
		if q := &asked[i]; q.IsLong() || enc.short.Has(q) {
			dst = enc.appendLong(dst, piece)
		} else {
			dst = enc.appendNew(dst, q, piece)
		}
	}
}

// appendNew appends the tokens of a short piece and remembers it.
func (enc *Encoder) appendNew(dst []uint32, q *short.Query, piece []byte) []uint32 {
	start := len(dst)
	if id := enc.encoding.pieces.findShort(q.Key, q.Hash); id != noToken {
		dst = append(dst, id)
	} else {
		dst = enc.coder.merge(dst, piece)
	}
	if !enc.short.Remember(q, dst[start:]) {
		enc.long.remember(piece, longHash(piece), dst[start:])
	}
	return dst
}

// appendLong appends the tokens of a piece that is long or has many tokens.
func (enc *Encoder) appendLong(dst []uint32, piece []byte) []uint32 {
	if len(piece) > longMax {
		return enc.coder.merge(dst, piece)
	}
	hash := longHash(piece)
	if tokens, ok := enc.long.find(piece, hash); ok {
		return append(dst, tokens...)
	}
	start := len(dst)
	if id := enc.encoding.pieces.findLong(piece, hash); id != noToken {
		dst = append(dst, id)
	} else {
		dst = enc.coder.merge(dst, piece)
	}
	enc.long.remember(piece, hash, dst[start:])
	return dst
}

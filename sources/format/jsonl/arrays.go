package jsonl

import (
	"context"
	"errors"

	"millrace/sources"
	"millrace/sources/format/parts/rows"
)

// Arrays opens files of JSON whose records are not one a line: the elements of one array, or objects over several lines
// behind each other.
type Arrays struct {
	// Windows keeps memory of random reads for later ones. Sources may share it; nil keeps none.
	Windows *rows.Windows
}

var _ sources.Format = Arrays{}

// Name returns the format's word in the mixture file.
func (Arrays) Name() string { return "json" }

// Traits implements sources.Format.
func (Arrays) Traits() sources.Traits { return sources.Traits{} }

// Open opens a file.
func (a Arrays) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	blob []byte) (sources.Shard, error) {
	l := rows.Layout{Name: "JSON", Noun: "record", Begins: "[{", NewParser: parsersOf(field), NewCutter: newElements}
	if _, err := l.NewParser(); err != nil {
		return nil, err
	}
	return rows.Open(ctx, f, l, a.Windows, lim, blob)
}

// elements cuts the elements of an array, or objects behind each other. It follows brackets and strings alone; the
// parser of an element checks the rest.
type elements struct {
	place    place
	inArray  bool
	isPart   bool // the bytes before are not known: an array may be around
	mark     int  // bytes of a byte order mark that were seen
	depth    int  // of brackets in an element
	inString bool // in an element
	escaped  bool
}

// place is a place between elements, or in one.
type place int

const (
	atStart place = iota
	atElement
	inElement
	atComma
	atEnd
)

func newElements(atRecord bool) rows.Cutter {
	if atRecord {
		return &elements{place: atElement, isPart: true}
	}
	return &elements{}
}

var (
	errStray = errors.New("want an element of the array, a comma or ]: the file is no JSON array of records")
	errOpen  = errors.New("the file ends inside its array")
)

// Cut implements rows.Cutter.
func (e *elements) Cut(b []byte) (n int, at rows.Border, err error) {
	for n < len(b) {
		c := b[n]
		if e.place == inElement {
			switch ends, behind := e.follow(c); {
			case ends && behind:
				return n + 1, rows.Ends, nil
			case ends:
				return n, rows.Ends, nil
			}
			n++
			continue
		}
		if c == ' ' || c == '\t' || c == '\r' || c == '\n' || e.isMark(c) {
			n++
			continue
		}
		if begins, err := e.between(c); err != nil {
			return n, rows.None, err
		} else if begins {
			return n, rows.Begins, nil
		}
		n++
	}
	return n, rows.None, nil
}

func (e *elements) isMark(c byte) bool {
	const mark = "\xef\xbb\xbf"
	if e.place != atStart || e.mark >= len(mark) || c != mark[e.mark] {
		return false
	}
	e.mark++
	return true
}

// between takes a byte between elements. begins reports whether it is the first of an element; then it is not taken.
func (e *elements) between(c byte) (begins bool, err error) {
	if e.isPart && e.place == atStart && (c == ',' || c == ']') {
		e.inArray, e.place = true, atComma
	}
	switch {
	case e.place == atStart && c == '[':
		e.inArray, e.place = true, atElement
	case e.place == atStart && c == '{':
		e.begin()
		return true, nil
	case e.inArray && e.place == atComma && c == ',':
		e.place = atElement
	case e.inArray && (e.place == atComma || e.place == atElement) && c == ']':
		e.place = atEnd
	case e.place == atElement && c != ',' && c != ']' && c != '}' && c != ':':
		e.begin()
		return true, nil
	default:
		return false, errStray
	}
	return false, nil
}

func (e *elements) begin() { e.place, e.depth, e.inString, e.escaped = inElement, 0, false, false }

// follow takes a byte of an element. behind reports whether the byte belongs to an element that ends.
func (e *elements) follow(c byte) (ends, behind bool) {
	switch {
	case e.inString:
		switch {
		case e.escaped:
			e.escaped = false
		case c == '\\':
			e.escaped = true
		case c == '"':
			e.inString = false
			return e.leave(e.depth == 0), true
		}
		return false, false
	case c == '"':
		e.inString = true
	case c == '{', c == '[':
		e.depth++
	case c == '}', c == ']':
		if e.depth == 0 {
			return e.leave(true), false // of the array around a number
		}
		e.depth--
		return e.leave(e.depth == 0), true
	case e.depth == 0 && (c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n'):
		return e.leave(true), false
	}
	return false, false
}

// leave ends an element if it is at its end.
func (e *elements) leave(ends bool) bool {
	if ends {
		if e.place = atStart; e.inArray {
			e.place = atComma
		}
		e.mark = 3 // no mark follows
	}
	return ends
}

// End implements rows.Cutter.
func (e *elements) End() (rows.Border, error) {
	if e.inArray && e.place != atEnd || e.place == inElement {
		return rows.None, errOpen
	}
	return rows.None, nil
}

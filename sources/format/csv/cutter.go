package csv

import (
	"bytes"

	"millrace/sources/format/parts/rows"
)

// state is a place in a record.
type state int

const (
	atValue  state = iota // before the first byte of a value
	inPlain               // in a value without quotes
	inQuotes              // in a value in quotes
	atQuote               // behind a quote inside of quotes
)

// part is the meaning of a byte of a record.
type part int

const (
	content part = iota
	nextValue
	nothing // a quote around a value, or the first of a doubled one
)

// take returns the meaning of a byte. The first of two quotes inside of quotes means nothing, and the second is
// content.
func (s *state) take(c, separator byte) part {
	switch {
	case *s == inQuotes && c == '"':
		*s = atQuote
		return nothing
	case *s == inQuotes:
		return content
	case c == separator:
		*s = atValue
		return nextValue
	case c == '"' && *s == atValue:
		*s = inQuotes
		return nothing
	case c == '"' && *s == atQuote:
		*s = inQuotes
		return content
	}
	*s = inPlain
	return content
}

// run returns the number of bytes at the start of b that are content and leave the state as it is. Line ends stop it,
// except inside of quotes.
func (s state) run(b []byte, separator byte) int {
	switch s {
	case inQuotes:
		if i := bytes.IndexByte(b, '"'); i >= 0 {
			return i
		}
		return len(b)
	case inPlain:
		for i, c := range b {
			if c == separator || c == '\n' || c == '\r' {
				return i
			}
		}
		return len(b)
	}
	return 0
}

// cutter finds the ends of records.
type cutter struct {
	separator byte
	isHeader  bool // the next record is the header, which is passed over
	inside    bool
	state     state
	mark      int // bytes of the byte order mark that were seen
}

// Cut implements rows.Cutter.
func (x *cutter) Cut(b []byte) (n int, at rows.Border, err error) {
	for ; n < len(b); n++ {
		if x.inside {
			if n += x.state.run(b[n:], x.separator); n == len(b) {
				break
			}
		}
		c := b[n]
		isEnd := c == '\n' || c == '\r'
		switch {
		case x.isHeader && x.mark < len(mark) && c == mark[x.mark]:
			x.mark++
			continue
		case !x.inside && isEnd:
			continue
		case !x.inside:
			x.inside, x.state, x.mark = true, atValue, len(mark)
			if !x.isHeader {
				return n, rows.Begins, nil
			}
		case isEnd && x.state != inQuotes:
			x.inside = false
			if !x.isHeader {
				return n, rows.Ends, nil
			}
			x.isHeader = false
			continue
		}
		x.state.take(c, x.separator)
	}
	return n, rows.None, nil
}

// End implements rows.Cutter. The last record needs no line end.
func (x *cutter) End() (rows.Border, error) {
	if !x.inside || x.isHeader {
		return rows.None, nil
	}
	if x.state == inQuotes {
		return rows.None, errQuote
	}
	return rows.Ends, nil
}

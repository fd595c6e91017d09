package extents

import "millrace/sources"

// Values gives the values of one record after the other.
type Values interface {
	// Text returns the document's text, or the reason why the record has none. b is the record's.
	Text(b []byte) (text []byte, missing, err error)
	// Other returns the value of a field of Field.Others.
	Other(i int, b []byte) (any, error)
}

// Fill sets the content of a record whose bytes are b, or its Err. row has room for the values of Field.Others. A text
// that is missing is the reason of a record only if no value is bad.
func Fill(r *sources.Record, v Values, hasText bool, row []any, b []byte) {
	var missing error
	if hasText {
		r.Text, missing, r.Err = v.Text(b)
	}
	for i := range row {
		if r.Err != nil {
			return
		}
		row[i], r.Err = v.Other(i, b)
	}
	if len(row) > 0 {
		r.Others = row
	}
	if r.Err == nil {
		r.Err = missing
	}
}

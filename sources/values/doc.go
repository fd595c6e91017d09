// Package values gives the stored values of every format their meaning.
//
// A format brings bytes, or the text of a number, and a logical type. Only [Type.Of] and [Numeral] decide the value. A
// value is nil, bool, int, float64, [Number], string, []byte, []any, [Object], or []uint32 for a list of token ids.
// Dates and times are texts, so they compare and print alike everywhere.
package values

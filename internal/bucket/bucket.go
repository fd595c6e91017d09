// Package bucket has the lengths of the rows of bucketed packing. Configuration and planner share it.
package bucket

import "millrace"

// Rule is the way in which a step of bucketed packing gets its number of rows.
type Rule string

// The rules.
const (
	// Tokens divides each sequence of the batch into as many rows of the step's length as it holds, so that steps
	// have about equal room for tokens.
	Tokens Rule = "tokens"
	// Constant gives every step the rows of the batch.
	Constant Rule = "constant"
)

// Shape is one shape of rows.
type Shape struct {
	Length uint32 // of a row, in the unit in which the sequence length was given
	Times  uint32 // rows that replace one sequence of the batch
}

// finest is the number of binary digits of a row's length under Tokens: rows are 32 to 64 lengths an octave.
const finest = 6

// Shapes returns the shapes of rows in sequences of a length, shortest first. The length counts pad multiples. A shape
// follows from these arguments alone. Its rows together are no longer than a sequence.
//
// Under Constant a length is the sequence length, halved up to millrace.MostHalvings times as far as it stays whole.
// Under Tokens a length has six binary digits. It is not shorter than the sequence length halved as often.
func Shapes(rule Rule, length uint32) (list []Shape) {
	if rule != Tokens {
		n := 0
		for n < millrace.MostHalvings && length>>(n+1)<<(n+1) == length {
			n++
		}
		for ; n >= 0; n-- {
			list = append(list, Shape{Length: length >> n, Times: 1})
		}
		return list
	}
	for at := (length-1)>>millrace.MostHalvings + 1; ; at++ {
		step := uint32(1)
		for at > step<<finest {
			step *= 2
		}
		at = min(uint32((uint64(at)+uint64(step)-1)/uint64(step)*uint64(step)), length)
		list = append(list, Shape{Length: at, Times: length / at})
		if at == length {
			return list
		}
	}
}

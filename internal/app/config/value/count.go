package value

import (
	"fmt"
	"math"
	"strconv"

	"millrace/internal/app/config/tree"
)

// Loaders is a number of loader processes.
type Loaders struct {
	Count uint32 // of an `up`; 0: auto
	// Readers is the number of loaders for which the sources are divided into stripes, as the hosts of a run have
	// agreed; 0: Count.
	Readers uint32
}

const (
	maxLoaders = 256
	mostCarry  = 512
)

// String returns auto or the number.
func (l Loaders) String() string {
	if l.Count == 0 {
		return "auto"
	}
	return strconv.FormatUint(uint64(l.Count), 10)
}

// SetText reads auto or a number.
func (l *Loaders) SetText(text string, c tree.Class) (problem, cure string) {
	if text == "auto" {
		l.Count = 0
		return "", ""
	}
	n, problem := Billionths(text)
	if problem != "" || c == tree.Quoted || !IsDigits(text) || n == 0 || n/Billion > maxLoaders ||
		len(text) > 1 && text[0] == '0' {
		return "must be auto or a number of processes, not " + tree.Quote(
				text,
			), fmt.Sprintf(
				"write auto, or a whole number from 1 to %d", maxLoaders,
			)
	}
	l.Count = uint32(n / Billion)
	return "", ""
}

// Carry is the number of segments that may wait for a later step, or auto.
type Carry struct {
	IsAuto bool
	Count  uint32 // if it is not auto
}

// String returns auto or the number.
func (c Carry) String() string {
	if c.IsAuto {
		return "auto"
	}
	return strconv.FormatUint(uint64(c.Count), 10)
}

// SetText reads auto or a number.
func (c *Carry) SetText(text string, class tree.Class) (problem, cure string) {
	*c = Carry{IsAuto: text == "auto"}
	if c.IsAuto {
		return "", ""
	}
	n, problem := Billionths(text)
	if problem != "" || class == tree.Quoted || !IsDigits(text) || n/Billion > mostCarry ||
		len(text) > 1 && text[0] == '0' {
		return "must be auto or a number of documents, not " + tree.Quote(text),
			fmt.Sprintf("write auto, or a whole number from 0 to %d", mostCarry)
	}
	c.Count = uint32(n / Billion)
	return "", ""
}

// Above is mean, or a number of tokens.
type Above struct {
	Tokens uint32 // 0: mean
}

// SetText reads mean or a number.
func (a *Above) SetText(text string, c tree.Class) (problem, cure string) {
	a.Tokens = 0
	if text == "mean" {
		return "", ""
	}
	n, problem := Billionths(text)
	if problem != "" || c == tree.Quoted || !IsDigits(text) || n == 0 || n/Billion > math.MaxInt32 ||
		len(text) > 1 && text[0] == '0' {
		return "must be mean or a number of tokens, not " + tree.Quote(
			text,
		), "write mean, or a whole number of tokens as 32768"
	}
	a.Tokens = uint32(n / Billion)
	return "", ""
}

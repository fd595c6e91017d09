package value

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"millrace"
	"millrace/app/config/tree"
)

// Loaders is a number of loader processes, or a range in which the run chooses the number.
type Loaders struct {
	Count uint32 // of an `up`, at the start and at least; 0: auto
	Most  uint32 // end of the range; 0: the number is fixed
}

const maxLoaders = 256

// IsRange reports whether the run chooses the number.
func (l Loaders) IsRange() bool { return l.Most > 0 }

// String returns auto, the number, or the range.
func (l Loaders) String() string {
	switch {
	case l.IsRange():
		return fmt.Sprintf("%d-%d", l.Count, l.Most)
	case l.Count == 0:
		return "auto"
	}
	return strconv.FormatUint(uint64(l.Count), 10)
}

// SetText reads auto, a number or a range.
func (l *Loaders) SetText(text string, c tree.Class) (problem, cure string) {
	*l = Loaders{}
	if text == "auto" {
		return "", ""
	}
	least, most, isRange := strings.Cut(text, "-")
	count, ok := numberOfLoaders(least)
	if isRange && ok {
		l.Most, ok = numberOfLoaders(most)
		ok = ok && count < l.Most
	}
	if !ok || c == tree.Quoted && !isRange {
		return "must be auto, a number of processes or a range of numbers, not " + tree.Quote(text),
			fmt.Sprintf("write auto, a whole number from 1 to %d, or a range as 1-8", maxLoaders)
	}
	l.Count = count
	return "", ""
}

// numberOfLoaders reads a whole number without leading zeros.
func numberOfLoaders(text string) (n uint32, ok bool) {
	billionths, problem := Billionths(text)
	if problem != "" || !IsDigits(text) || text[0] == '0' || billionths/Billion > maxLoaders {
		return 0, false
	}
	return uint32(billionths / Billion), true
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
	if problem != "" || class == tree.Quoted || !IsDigits(text) || n/Billion > millrace.MostCarried ||
		len(text) > 1 && text[0] == '0' {
		return "must be auto or a number of documents, not " + tree.Quote(text),
			fmt.Sprintf("write auto, or a whole number from 0 to %d", millrace.MostCarried)
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

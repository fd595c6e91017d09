package value

import (
	"math/bits"
	"strconv"
	"strings"

	"millrace/app/config/tree"
)

// Bytes is a size in bytes.
type Bytes uint64

// byteUnits are the units a size may have, the largest binary ones first: String uses the first that divides.
var byteUnits = [...]struct {
	name string
	size uint64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

const maxBytes = 1 << 50

// String returns the size in the largest binary unit that divides it.
func (b Bytes) String() string {
	for _, u := range byteUnits[:4] {
		if b > 0 && uint64(b)%u.size == 0 {
			return strconv.FormatUint(uint64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(b), 10)
}

// parseBytes reads 1048576, 512MiB, 1.5 GB.
func parseBytes(text string) (b Bytes, problem string) {
	number, unit := text, uint64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimRight(rest, " "), u.size
			break
		}
	}
	if IsDigits(number) && number != "" { // more digits than a Decimal holds
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n > maxBytes/unit {
			return 0, "is too large"
		}
		return Bytes(n * unit), ""
	}
	whole, fraction, _ := strings.Cut(number, ".")
	if whole == "" || fraction == "" || !IsDigits(whole) || !IsDigits(fraction) {
		return 0, "is not a size"
	}
	n, problem := Billionths(number)
	if problem != "" {
		return 0, problem
	}
	size := MulDiv(n, unit, Billion)
	if size > maxBytes {
		return 0, "is too large"
	}
	if hi, lo := bits.Mul64(n, unit); bits.Rem64(hi, lo, Billion) != 0 {
		return 0, "is not a whole number of bytes"
	}
	return Bytes(size), ""
}

// SetText reads a size.
func (b *Bytes) SetText(text string, c tree.Class) (problem, cure string) {
	size, problem := parseBytes(text)
	if problem != "" {
		return problem + ": " + tree.Quote(text), "write a number of bytes or a size with a unit, as 512MiB or 1GB"
	}
	*b = size
	return "", ""
}

package hf

import (
	"errors"
	"math"
	"strconv"
)

// number returns the value of a JSON number as the library reads it: serde_json rounds the digits to a float, and then
// their product with a power of ten. The last bit of a number of 17 digits may be another than that of the nearest
// float, and it decides between divisions of a text with equal scores. See f64_from_parts in serde_json 1.0.
func number(text []byte) (float64, error) {
	if _, err := strconv.ParseFloat(string(text), 64); err != nil {
		return 0, err
	}
	rest, isNegative := text, text[0] == '-'
	if isNegative {
		rest = rest[1:]
	}
	digits, exponent, isBehind, isFull := uint64(0), 0, false, false
	for len(rest) > 0 && rest[0] != 'e' && rest[0] != 'E' {
		c := rest[0]
		rest = rest[1:]
		if c == '.' {
			isBehind = true
			continue
		}
		if !isFull && (digits > math.MaxUint64/10 || digits*10 > math.MaxUint64-uint64(c-'0')) {
			isFull = true
		}
		switch {
		case !isFull:
			digits = digits*10 + uint64(c-'0')
			if isBehind {
				exponent--
			}
		case !isBehind:
			exponent++
		}
	}
	if len(rest) > 0 {
		more, err := strconv.Atoi(string(rest[1:]))
		if err != nil {
			return 0, err
		}
		exponent += more
	}
	value, err := scale(float64(digits), exponent)
	if isNegative {
		value = -value
	}
	return value, err
}

// scale returns f times ten to the power of an exponent.
func scale(f float64, exponent int) (float64, error) {
	for ; f != 0 && exponent < -308; exponent += 308 {
		f /= 1e308
	}
	switch {
	case f == 0:
		return f, nil
	case exponent < 0:
		return f / power(-exponent), nil
	case exponent > 308 || math.IsInf(f*power(exponent), 0):
		return 0, errors.New("the number is too large")
	}
	return f * power(exponent), nil
}

// power returns the float nearest to ten to the power of n, which is at most 308.
func power(n int) float64 {
	f, _ := strconv.ParseFloat("1e"+strconv.Itoa(n), 64) // in range
	return f
}

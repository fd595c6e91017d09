package values

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Unit is the unit of a time, as the number of units in one second.
type Unit int64

// The units.
const (
	Seconds Unit = 1
	Millis  Unit = 1e3
	Micros  Unit = 1e6
	Nanos   Unit = 1e9
)

// The days since 1970 of the years 1 to 9999, which ISO 8601 writes with four digits.
const (
	firstDay = -719162
	lastDay  = 2932896
	daySize  = 24 * 60 * 60 // seconds
)

// date returns a day since 1970 as a text.
func date(day int64) (any, error) {
	if day < firstDay || day > lastDay {
		return nil, bad("the date lies %d days from 1970; years 1 to 9999 are read", day)
	}
	return time.Unix(day*daySize, 0).UTC().Format(time.DateOnly), nil
}

// timestamp returns a number of units since 1970 as a text. A moment is written in UTC, a local time without a zone.
func timestamp(n int64, unit Unit, isMoment bool) (any, error) {
	seconds, rest := floor(n, unit)
	if seconds < firstDay*daySize || seconds >= (lastDay+1)*daySize {
		return nil, bad("the time lies %d seconds from 1970; years 1 to 9999 are read", seconds)
	}
	text := time.Unix(seconds, 0).UTC().Format(time.DateTime) + fraction(rest, unit)
	if isMoment {
		text += "+00:00"
	}
	return text, nil
}

// timeOfDay returns a number of units since midnight as a text.
func timeOfDay(n int64, unit Unit) (any, error) {
	seconds, rest := floor(n, unit)
	if seconds < 0 || seconds >= daySize {
		return nil, bad("the time of day lies %d seconds from midnight", seconds)
	}
	return time.Unix(seconds, 0).UTC().Format(time.TimeOnly) + fraction(rest, unit), nil
}

// floor divides a number of units into whole seconds and the units of the rest.
func floor(n int64, unit Unit) (seconds, rest int64) {
	seconds, rest = n/int64(unit), n%int64(unit)
	if rest < 0 {
		seconds, rest = seconds-1, rest+int64(unit)
	}
	return seconds, rest
}

// fraction returns the part of a second as Python writes it: nothing, six digits, or nine if six do not do.
func fraction(rest int64, unit Unit) string {
	nanos := rest * int64(Nanos/unit)
	switch {
	case nanos == 0:
		return ""
	case nanos%1000 == 0:
		return fmt.Sprintf(".%06d", nanos/1000)
	}
	return fmt.Sprintf(".%09d", nanos)
}

// duration returns a number of units as a number of seconds: an int if it is whole.
func duration(n int64, unit Unit) any {
	if n%int64(unit) == 0 {
		return int(n / int64(unit))
	}
	digits := len(strconv.FormatInt(int64(unit), 10)) - 1
	size, sign := uint64(n), ""
	if n < 0 {
		size, sign = -uint64(n), "-"
	}
	text := fmt.Sprintf("%s%d.%0*d", sign, size/uint64(unit), digits, size%uint64(unit))
	return Number(strings.TrimRight(text, "0"))
}

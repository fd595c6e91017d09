package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNoTime is the error of a template that asks for the day and has none.
var ErrNoTime = errors.New("it asks strftime_now for the day, and a run does not depend on the day; write the day as " +
	"`template: {variables: {date: \"2026-11-28\"}}`")

// clock returns a function that writes a moment in a format of Python's strftime.
func clock(at time.Time) function {
	return func(x *rendering, a args) any {
		text, err := strftime(at, str(a.get(0, "format", Text{})).String())
		if err != nil {
			return x.failFor(err)
		}
		return x.made(mark(text, 0))
	}
}

// layouts are Go's layouts of the directives of strftime that have one.
var layouts = map[string]string{
	"%Y": "2006", "%y": "06", "%m": "01", "%-m": "1", "%d": "02", "%-d": "2", "%e": "_2", "%B": "January", "%b": "Jan",
	"%h": "Jan", "%A": "Monday", "%a": "Mon", "%H": "15", "%I": "03", "%-I": "3", "%M": "04", "%-M": "4", "%S": "05",
	"%-S": "5", "%p": "PM", "%j": "002", "%F": "2006-01-02", "%T": "15:04:05", "%R": "15:04", "%D": "01/02/06",
	"%x": "01/02/06", "%X": "15:04:05", "%c": "Mon Jan _2 15:04:05 2006",
}

// strftime writes a moment as Python does in the C locale, without a zone.
func strftime(at time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		n := 2
		if i+1 < len(format) && format[i+1] == '-' {
			n = 3
		}
		directive := format[i:min(i+n, len(format))]
		switch layout, ok := layouts[directive]; {
		case ok:
			b.WriteString(at.Format(layout))
		case directive == "%%":
			b.WriteByte('%')
		case directive == "%f":
			b.WriteString("000000")
		case directive == "%-H":
			fmt.Fprint(&b, at.Hour())
		case directive == "%-j":
			fmt.Fprint(&b, at.YearDay())
		case directive == "%w":
			fmt.Fprint(&b, int(at.Weekday()))
		case directive == "%u":
			fmt.Fprint(&b, (int(at.Weekday())+6)%7+1)
		case directive == "%Z", directive == "%z": // a time without a zone
		default:
			return "", fmt.Errorf("strftime_now has the directive %q, which is not read", directive)
		}
		i += len(directive) - 1
	}
	return b.String(), nil
}

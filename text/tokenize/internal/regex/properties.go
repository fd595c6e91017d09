package regex

import (
	_ "embed"
	"encoding/binary"
	"strings"
)

// properties.bin has the characters of Unicode properties, by testdata/make.py. They come from the engines that the
// expressions are written for, because Go's unicode tables are of another Unicode version.
//
//go:embed properties.bin
var properties string

// longNames are the long names of general categories.
func longNames() map[string]string {
	return map[string]string{
		"letter": "l", "uppercaseletter": "lu", "lowercaseletter": "ll", "titlecaseletter": "lt",
		"modifierletter": "lm", "otherletter": "lo", "mark": "m", "nonspacingmark": "mn", "spacingmark": "mc",
		"enclosingmark": "me", "number": "n", "decimalnumber": "nd", "letternumber": "nl", "othernumber": "no",
		"punctuation": "p", "punct": "p", "connectorpunctuation": "pc", "dashpunctuation": "pd",
		"openpunctuation": "ps", "closepunctuation": "pe", "initialpunctuation": "pi", "finalpunctuation": "pf",
		"otherpunctuation": "po", "symbol": "s", "mathsymbol": "sm", "currencysymbol": "sc", "modifiersymbol": "sk",
		"othersymbol": "so", "separator": "z", "spaceseparator": "zs", "lineseparator": "zl",
		"paragraphseparator": "zp", "other": "c", "control": "cc", "format": "cf", "privateuse": "co",
	}
}

// property returns the characters of a property: a general category, a script, Alphabetic or White_Space. Case, spaces,
// hyphens and underscores in its name do not count. A category of one letter is all categories that begin with it.
func property(name string) (s set, ok bool) {
	name = strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))
	if short, ok := longNames()[name]; ok {
		name = short
	}
	for rest := []byte(properties); len(rest) > 0; {
		var key string
		var spans set
		key, spans, rest = readProperty(rest)
		key = strings.ReplaceAll(strings.ToLower(key), "_", "")
		if key == name || len(name) == 1 && len(key) == 2 && key[:1] == name {
			s, ok = append(s, spans...), true
		}
	}
	s = setOf(s...)
	if name == "c" { // and those of no category, but no half of a surrogate
		assigned, _ := property("l")
		for _, other := range []string{"m", "n", "p", "s", "z"} {
			of, _ := property(other)
			assigned = assigned.union(of)
		}
		s = assigned.complement()
	}
	return s, ok
}

// readProperty reads the first property of the table: its name, and for each run of characters the distance from the
// run before and the length.
func readProperty(table []byte) (name string, s set, rest []byte) {
	number := func() int {
		value, n := binary.Uvarint(table)
		table = table[n:]
		return int(value)
	}
	length := number()
	name, table = string(table[:length]), table[length:]
	at := 0
	for range number() {
		lo := at + number()
		at = lo + number()
		s = append(s, span{rune(lo), rune(at - 1)})
	}
	return name, s, table
}

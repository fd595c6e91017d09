package config

import (
	"reflect"
	"regexp"
	"testing"

	"millrace/app/config/decode"
	"millrace/app/config/value"
)

var bound = regexp.MustCompile(`(?:^|,)(minimum|maximum)=([^,]*)`)

// readsBounds reports whether values of a type are checked against the bounds in the tag of their key.
func readsBounds(of reflect.Type) bool {
	if of == reflect.TypeFor[value.Decimal]() {
		return true
	}
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	isLiteral := reflect.PointerTo(of).Implements(reflect.TypeFor[decode.Literal]())
	return !isLiteral && of.ConvertibleTo(reflect.TypeFor[uint64]())
}

// TestBoundsAreRead: a bound in a tag is a whole number, and its key is of a type that reads it. Sizes do not: their
// bounds are in checkLimits.
func TestBoundsAreRead(t *testing.T) {
	seen, read := map[reflect.Type]bool{}, 0
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			for _, found := range bound.FindAllStringSubmatch(f.Tag.Get("jsonschema"), -1) {
				read++
				if !value.IsDigits(found[2]) || found[2] == "" {
					t.Errorf("%s.%s: %s is no whole number, so it would bound nothing", of, f.Name, found[0])
				}
				if !readsBounds(f.Type) {
					t.Errorf("%s.%s: a %s reads no bounds; put them into app/config/check.go", of, f.Name, f.Type)
				}
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Config]())
	if read < 20 {
		t.Errorf("%d bounds were found", read)
	}
}

package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"millrace"
)

// TestLimitsAreThePlanners compares the limits in tags with the constants of the planner, which a tag cannot name.
func TestLimitsAreThePlanners(t *testing.T) {
	for name, want := range map[string]int{"Carry": millrace.MostCarried, "Window": millrace.MostWindow} {
		field, _ := reflect.TypeFor[Config]().FieldByName(name)
		if tag := field.Tag.Get("jsonschema"); !strings.HasSuffix(tag, fmt.Sprintf(",maximum=%d", want)) {
			t.Errorf("%s has the tag %q, the planner takes at most %d", name, tag, want)
		}
	}
}

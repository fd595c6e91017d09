package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"millrace"
	"millrace/app/config/tree"
	"millrace/app/config/value"
)

// TestLimitsAreThePlanners compares the limits of keys with the constants of the planner, which a tag cannot name.
func TestLimitsAreThePlanners(t *testing.T) {
	for count, ok := range map[int]bool{millrace.MostCarried: true, millrace.MostCarried + 1: false} {
		if problem, _ := new(value.Carry).SetText(fmt.Sprint(count), tree.Number); (problem == "") != ok {
			t.Errorf("carry: %d: %q", count, problem)
		}
	}
	for name, want := range map[string]int{"Window": millrace.MostWindow} {
		field, _ := reflect.TypeFor[Config]().FieldByName(name)
		if tag := field.Tag.Get("jsonschema"); !strings.HasSuffix(tag, fmt.Sprintf(",maximum=%d", want)) {
			t.Errorf("%s has the tag %q, the planner takes at most %d", name, tag, want)
		}
	}
}

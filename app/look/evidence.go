package look

import (
	"slices"

	"millrace/sources/format/parts/fields"
)

// evidence counts the records in which a field has values of some kinds.
type evidence struct {
	texts, lists, bools, ids, masks int  // ids are below 2³¹; masks are 0 and 1
	verdicts                        int  // lists of booleans
	filled                          int  // values with some content
	padded, right                   int  // masks with a 0; those whose zeros are all at the end
	bytes                           int  // of the texts
	restarts                        bool // some list of numbers has a 0 behind its first place
	talk                            talk
}

// add looks at one more value, which is not null.
func (e *evidence) add(v any) {
	e.talk.add(v)
	switch v := v.(type) {
	case string:
		e.texts, e.bytes = e.texts+1, e.bytes+len(v)
		if v != "" && v != "[]" {
			e.filled++
		}
		return
	case bool:
		e.bools++
	case []any:
		e.lists++
		if len(v) > 0 && !slices.ContainsFunc(v, func(x any) bool { _, ok := x.(bool); return !ok }) {
			e.verdicts++
		}
		if len(v) == 0 {
			e.ids, e.masks = e.ids+1, e.masks+1
			return
		}
	case []uint32:
		e.lists++
		if len(v) == 0 {
			e.ids, e.masks = e.ids+1, e.masks+1
			return
		}
	}
	e.filled++
	if numbers, ok := fields.WholeNumbers(v); ok {
		e.addNumbers(numbers)
	}
}

// addNumbers looks at a list of whole numbers.
func (e *evidence) addNumbers(numbers []int64) {
	if !slices.ContainsFunc(numbers, func(n int64) bool { return n < 0 || n >= 1<<31 }) {
		e.ids++
	}
	e.restarts = e.restarts || slices.Contains(numbers[1:], 0)
	if slices.ContainsFunc(numbers, func(n int64) bool { return n != 0 && n != 1 }) {
		return
	}
	e.masks++
	if first := slices.Index(numbers, 0); first >= 0 {
		e.padded++
		if !slices.Contains(numbers[first:], 1) {
			e.right++
		}
	}
}

// compare counts a record whose labels are the ids beside them, or -100.
func (d *File) compare(values []any) {
	at := func(name string) []int64 {
		i := slices.IndexFunc(d.Fields, func(x Field) bool { return x.Name == name })
		if i < 0 || i >= len(values) {
			return nil
		}
		numbers, _ := fields.WholeNumbers(values[i])
		return numbers
	}
	labels := at("labels")
	if labels == nil {
		return
	}
	for _, name := range usualIDs() {
		ids := at(name)
		if len(ids) != len(labels) {
			continue
		}
		for i, label := range labels {
			if label != ids[i] && label != fields.UntrainedLabel {
				return
			}
		}
		d.labels++
		return
	}
}

package sourcetest

import (
	"maps"
	"slices"

	"millrace/sources/values"
)

// Objects returns a value with an object, whose keys are sorted, in place of each map.
func Objects(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = Objects(v[i])
		}
		return out
	case map[string]any:
		var out values.Object
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out.Add(key, Objects(v[key]))
		}
		return out
	}
	return v
}

// Maps returns a value with a map in place of each object. Objects with equal keys in other orders are equal then.
func Maps(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = Maps(v[i])
		}
		return out
	case values.Object:
		out := make(map[string]any, len(v.Keys))
		for i, key := range v.Keys {
			out[key] = Maps(v.Values[i])
		}
		return out
	}
	return v
}

package values

import (
	"bytes"
	"encoding/json"
)

// Object is an object whose keys have the order of the file. Each key is there once.
type Object struct {
	Keys   []string
	Values []any
}

// Add appends a key. The caller knows that it is new, or calls Unique at the end.
func (o *Object) Add(key string, value any) {
	o.Keys, o.Values = append(o.Keys, key), append(o.Values, value)
}

// Get returns the value of a key, and whether there is one.
func (o Object) Get(key string) (any, bool) {
	for i, k := range o.Keys {
		if k == key {
			return o.Values[i], true
		}
	}
	return nil, false
}

// fewKeys is the number of keys that are compared in pairs: a map of them costs more.
const fewKeys = 16

// Unique returns the object with each key once. The last of equal keys counts, at the place of the first, as in Python.
// It uses the object's memory.
func (o Object) Unique() Object {
	if len(o.Keys) <= fewKeys && !o.repeats() {
		return o
	}
	places := make(map[string]int, len(o.Keys))
	n := 0
	for i, key := range o.Keys {
		at, ok := places[key]
		if !ok {
			at, places[key] = n, n
			n++
		}
		o.Keys[at], o.Values[at] = key, o.Values[i]
	}
	return Object{o.Keys[:n], o.Values[:n]}
}

// repeats reports whether a key is there twice.
func (o Object) repeats() bool {
	for i, key := range o.Keys {
		for _, other := range o.Keys[:i] {
			if key == other {
				return true
			}
		}
	}
	return false
}

// MarshalJSON implements json.Marshaler. Keys keep their order.
func (o Object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	out.WriteByte('{')
	for i, key := range o.Keys {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := e.Encode(key); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := e.Encode(o.Values[i]); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

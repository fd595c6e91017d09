package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// DecodeJSON reads a JSON text. Objects keep the order of their keys. The last value of a doubled key counts, at the
// place of the first, as in Python.
func DecodeJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("read JSON: there is more behind the value")
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > mostDepth {
		return nil, fmt.Errorf("read JSON: values are nested deeper than %d", mostDepth)
	}
	switch t := t.(type) {
	case json.Number:
		if n, err := strconv.Atoi(t.String()); err == nil {
			return n, nil
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			out := []any{}
			for d.More() {
				v, err := decodeValue(d, depth+1)
				if err != nil {
					return nil, err
				}
				out = append(out, v)
			}
			_, err := d.Token()
			return out, err
		}
		var out Object
		places := map[string]int{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			name := key.(string)
			if at, ok := places[name]; ok {
				out.Values[at] = v
				continue
			}
			places[name] = len(out.Keys)
			out.Keys, out.Values = append(out.Keys, name), append(out.Values, v)
		}
		_, err := d.Token()
		return out, err
	}
	return t, nil
}

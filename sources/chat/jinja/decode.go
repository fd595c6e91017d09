package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
)

// DecodeJSON reads a JSON text. Objects keep the order of their keys.
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
		if n, err := strconv.Atoi(t.String()); err == nil && math.Abs(float64(n)) < 1<<53 {
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
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			out.Keys, out.Values = append(out.Keys, key.(string)), append(out.Values, v)
		}
		_, err := d.Token()
		return out, err
	}
	return t, nil
}

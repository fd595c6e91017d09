package delta

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace"
	"millrace/sources/values"
)

// schema has the partition columns of a table.
type schema struct {
	keys  []string
	types []kind // of the keys
}

// column is a column of a schema.
type column struct {
	Name string          `json:"name"`
	Type json.RawMessage `json:"type"`
}

// kind is the name of a primitive type: string, long, decimal(10,2).
type kind string

// schemaOf returns the partition columns of a schema.
func schemaOf(text string, keys []string) (*schema, error) {
	var all struct {
		Fields []column `json:"fields"`
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, millrace.Errorf(millrace.ErrDamaged, "its schema is no JSON: %w: restore it", err)
	}
	s := &schema{keys: keys}
	for _, name := range keys {
		i := slices.IndexFunc(all.Fields, func(c column) bool { return c.Name == name })
		var of kind
		if i < 0 || json.Unmarshal(all.Fields[i].Type, &of) != nil {
			return nil, millrace.Errorf(millrace.ErrDamaged, "its schema has no plain type of the partition column %s"+
				": restore it", name)
		}
		s.types = append(s.types, of)
	}
	return s, nil
}

// value returns the value of a partition column, which a log has as a text. An empty text is null.
func (k kind) value(text *string) (any, error) {
	if text == nil || *text == "" {
		return nil, nil
	}
	v, err := k.of(*text)
	if err != nil {
		return nil, fmt.Errorf("%q is no %s", *text, k)
	}
	return v, nil
}

func (k kind) of(text string) (any, error) {
	switch name, _, _ := strings.Cut(string(k), "("); name {
	case "string":
		return text, nil
	case "byte", "short", "integer", "long":
		n, err := strconv.ParseInt(text, 10, 64)
		return int(n), err
	case "float", "double":
		bits := 64
		if k == "float" {
			bits = 32
		}
		return strconv.ParseFloat(text, bits)
	case "boolean":
		return strconv.ParseBool(text)
	case "decimal":
		return k.decimal(text)
	case "date":
		at, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return nil, err
		}
		return values.Type{Kind: values.Date}.Of(binary.LittleEndian.AppendUint32(nil, uint32(at.Unix()/(24*60*60))))
	case "timestamp", "timestamp_ntz":
		return k.timestamp(text)
	}
	return nil, fmt.Errorf("the type is not read")
}

// timestamp returns the value of a moment, or of a local time. A moment without a zone is in UTC.
func (k kind) timestamp(text string) (any, error) {
	var at time.Time
	var err error
	for _, layout := range []string{time.DateTime, "2006-01-02T15:04:05", time.RFC3339} {
		if at, err = time.Parse(layout, text); err == nil { // each takes a fraction of a second
			break
		}
	}
	if err != nil {
		return nil, err
	}
	t := values.Type{Kind: values.Timestamp, Unit: values.Micros, IsMoment: k == "timestamp"}
	return t.Of(binary.LittleEndian.AppendUint64(nil, uint64(at.UnixMicro())))
}

// decimal returns the value of a decimal with all digits of its scale.
func (k kind) decimal(text string) (any, error) {
	var precision, scale int
	if _, err := fmt.Sscanf(string(k), "decimal(%d,%d)", &precision, &scale); err != nil {
		return nil, err
	}
	whole, part, _ := strings.Cut(text, ".")
	_, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.ContainsAny(text, "eExXpP_nN") || len(part) > scale || scale > 38 {
		return nil, strconv.ErrSyntax
	}
	sign := ""
	if whole = strings.TrimPrefix(whole, "+"); strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	whole = sign + cmp.Or(whole, "0")
	if scale == 0 {
		return values.Numeral(whole)
	}
	return values.Number(whole + "." + part + strings.Repeat("0", scale-len(part))), nil
}

package arrow

import "millrace/sources/values"

// setType reads the meaning of a field's values, without that of an extension.
func (f *field) setType(t flat) error {
	f.typ = values.Type{Kind: values.Binary}
	switch f.kind {
	case kNull:
		f.typ.Kind = values.Null
	case kInt:
		f.typ.Kind = values.Whole
		if f.signed {
			f.typ.Kind = values.Signed
		}
	case kFloat:
		f.typ.Kind = values.Float
	case kUtf8, kLargeUtf8, kUtf8View:
		f.typ.Kind = values.Text
	case kDecimal:
		scale, err := t.number(1, 4, 0)
		if err != nil || scale > mostScale || scale < -mostScale {
			return errFlat
		}
		f.typ = values.Type{Kind: values.Decimal, Scale: int(scale)}
	case kDate:
		f.typ.Kind = values.Date
		if f.width == 8 {
			f.typ.Unit = values.Millis
		}
	case kTime:
		return f.setUnit(t, values.Time, 1)
	case kDuration:
		return f.setUnit(t, values.Duration, 1)
	case kTimestamp:
		zone, err := t.text(1)
		if err != nil {
			return err
		}
		f.typ.IsMoment = zone != ""
		return f.setUnit(t, values.Timestamp, 0)
	}
	return nil
}

// mostScale bounds the digits of a decimal, whose text the reader makes.
const mostScale = 1 << 10

// setUnit reads the unit of a time.
func (f *field) setUnit(t flat, kind values.Kind, byDefault int64) error {
	units := []values.Unit{values.Seconds, values.Millis, values.Micros, values.Nanos}
	unit, err := t.number(0, 2, byDefault)
	if err != nil || unit < 0 || int(unit) >= len(units) {
		return errFlat
	}
	f.typ.Kind, f.typ.Unit = kind, units[unit]
	return nil
}

// extensionKey is the key of an extension type among the metadata of a field.
const extensionKey = "ARROW:extension:name"

// extend gives a field the meaning of an extension type. A type that is not named here has the meaning of its storage.
// See https://arrow.apache.org/docs/format/CanonicalExtensions.html.
func (f *field) extend(name string) {
	switch {
	case name == "arrow.json" && f.isText():
		f.typ = values.Type{Kind: values.JSON}
	case name == "arrow.uuid" && f.kind == kFixedBinary && f.width == 16:
		f.typ = values.Type{Kind: values.UUID}
	case name == "arrow.bool8" && f.kind == kInt && f.width == 1:
		f.typ = values.Type{Kind: values.Bool}
	case name == "arrow.opaque", name == "arrow.parquet.variant", name == "parquet.variant":
		f.refused = name
	}
}

// mark gives the values at and below a field that features call JSON this meaning.
func (f *field) mark(features *values.Features) {
	switch f.kind {
	case kList, kLargeList, kListView, kLargeListView, kFixedList:
		f.children[0].mark(features.Element())
		return
	case kMap:
		return // no feature is stored as a map
	}
	if features != nil && features.IsJSON && f.typ.Kind == values.Text {
		f.typ = values.Type{Kind: values.JSON}
	}
	for _, c := range f.children {
		c.mark(features.Field(c.name))
	}
}

// isWhole reports whether a field has integers without another meaning.
func (f *field) isWhole() bool {
	return f.index == nil && (f.typ.Kind == values.Signed || f.typ.Kind == values.Whole)
}

// metadata returns the pairs of a field of KeyValues. The last of equal keys counts.
func (t flat) metadata(field int) (map[string]string, error) {
	pairs, err := t.tables(field)
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		key, err := p.text(0)
		if err != nil {
			return nil, err
		}
		if out[key], err = p.text(1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

package parquet

import (
	"fmt"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"millrace/sources/values"
)

// typeOf returns the meaning of a leaf's values. refused is the name of a type that is not read. See
// https://github.com/apache/parquet-format/blob/master/LogicalTypes.md.
func typeOf(e *format.SchemaElement) (t values.Type, refused string) {
	t, refused = markedType(e)
	if refused != "" {
		return t, refused
	}
	ok := true
	isWhole := e.Type.V == format.Int32 || e.Type.V == format.Int64
	isBytes := e.Type.V == format.ByteArray || e.Type.V == format.FixedLenByteArray
	switch t.Kind {
	case values.Signed, values.Whole, values.Time, values.Timestamp:
		ok = isWhole
	case values.Date:
		ok = e.Type.V == format.Int32
	case values.Decimal:
		ok = isWhole || isBytes
	case values.Text, values.JSON:
		ok = e.Type.V == format.ByteArray
	case values.UUID:
		ok = e.Type.V == format.FixedLenByteArray && e.TypeLength.V == 16
	case values.Float:
		ok = e.Type.V != format.FixedLenByteArray || e.TypeLength.V == 2
	}
	if !ok {
		return t, fmt.Sprintf("%s of %v", nameOf(e), e.Type.V)
	}
	return t, ""
}

// typeName returns the name of a leaf's type for people.
func typeName(e *format.SchemaElement) string {
	if e.LogicalType.Value != nil || e.ConvertedType.Valid && e.ConvertedType.V != deprecated.UTF8 {
		return e.Type.V.String() + " " + nameOf(e)
	}
	return e.Type.V.String()
}

// nameOf returns the name of a logical type for people.
func nameOf(e *format.SchemaElement) string {
	if e.LogicalType.Value != nil {
		return e.LogicalType.String()
	}
	switch e.ConvertedType.V {
	case deprecated.Decimal:
		return "DECIMAL"
	case deprecated.Date:
		return "DATE"
	case deprecated.Json:
		return "JSON"
	case deprecated.Bson:
		return "BSON"
	case deprecated.Interval:
		return "INTERVAL"
	}
	return fmt.Sprintf("converted type %d", e.ConvertedType.V)
}

// markedType returns the type that the logical type says, else the converted type, else the stored type.
func markedType(e *format.SchemaElement) (t values.Type, refused string) {
	switch l := e.LogicalType.Value.(type) {
	case *format.StringType, *format.EnumType:
		return values.Type{Kind: values.Text}, ""
	case *format.DecimalType:
		return decimalOf(e, l.Scale), ""
	case *format.DateType:
		return values.Type{Kind: values.Date}, ""
	case *format.TimeType:
		return timeOf(values.Time, l.Unit, false)
	case *format.TimestampType:
		return timeOf(values.Timestamp, l.Unit, l.IsAdjustedToUTC)
	case *format.IntType:
		return integerOf(l.IsSigned), ""
	case *format.NullType:
		return values.Type{Kind: values.Null}, ""
	case *format.JsonType:
		return values.Type{Kind: values.JSON}, ""
	case *format.UUIDType:
		return values.Type{Kind: values.UUID}, ""
	case *format.Float16Type:
		return values.Type{Kind: values.Float}, ""
	case *format.GeometryType, *format.GeographyType:
		return values.Type{Kind: values.Binary}, ""
	case nil:
		if e.ConvertedType.Valid {
			return convertedType(e)
		}
		return storedType(e.Type.V), ""
	case *format.MapType, *format.ListType:
		return storedType(e.Type.V), ""
	default:
		return t, l.String()
	}
}

// convertedType returns the type of older writers. Their timestamps do not say whether they are moments, so they are
// local times, as in pyarrow.
func convertedType(e *format.SchemaElement) (t values.Type, refused string) {
	switch e.ConvertedType.V {
	case deprecated.UTF8, deprecated.Enum:
		return values.Type{Kind: values.Text}, ""
	case deprecated.Decimal:
		return decimalOf(e, e.Scale.V), ""
	case deprecated.Date:
		return values.Type{Kind: values.Date}, ""
	case deprecated.TimeMillis:
		return values.Type{Kind: values.Time, Unit: values.Millis}, ""
	case deprecated.TimeMicros:
		return values.Type{Kind: values.Time, Unit: values.Micros}, ""
	case deprecated.TimestampMillis:
		return values.Type{Kind: values.Timestamp, Unit: values.Millis}, ""
	case deprecated.TimestampMicros:
		return values.Type{Kind: values.Timestamp, Unit: values.Micros}, ""
	case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32, deprecated.Uint64:
		return integerOf(false), ""
	case deprecated.Int8, deprecated.Int16, deprecated.Int32, deprecated.Int64:
		return integerOf(true), ""
	case deprecated.Json:
		return values.Type{Kind: values.JSON}, ""
	case deprecated.Bson, deprecated.Interval:
		return t, nameOf(e)
	}
	return storedType(e.Type.V), ""
}

func storedType(t format.Type) values.Type {
	switch t {
	case format.Boolean:
		return values.Type{Kind: values.Bool}
	case format.Int32, format.Int64:
		return values.Type{Kind: values.Signed}
	case format.Float, format.Double:
		return values.Type{Kind: values.Float}
	case format.Int96:
		return values.Type{Kind: values.Impala}
	case format.FixedLenByteArray:
		return values.Type{Kind: values.Binary}
	}
	return values.Type{}
}

func integerOf(isSigned bool) values.Type {
	if isSigned {
		return values.Type{Kind: values.Signed}
	}
	return values.Type{Kind: values.Whole}
}

// decimalOf returns a decimal: its bytes are big-endian, unless they are those of an integer.
func decimalOf(e *format.SchemaElement, scale int32) values.Type {
	isBig := e.Type.V == format.ByteArray || e.Type.V == format.FixedLenByteArray
	return values.Type{Kind: values.Decimal, Scale: int(scale), IsBig: isBig}
}

func timeOf(kind values.Kind, unit format.TimeUnit, isMoment bool) (t values.Type, refused string) {
	t = values.Type{Kind: kind, IsMoment: isMoment}
	switch unit.Value.(type) {
	case *format.MilliSeconds:
		t.Unit = values.Millis
	case *format.MicroSeconds:
		t.Unit = values.Micros
	case *format.NanoSeconds:
		t.Unit = values.Nanos
	default:
		return t, "a time without a unit"
	}
	return t, ""
}

// mostScale bounds the digits of a decimal, whose text the reader makes.
const mostScale = 1 << 10

// mark gives each leaf at and below a node its type. features names the JSON columns that the schema does not show.
func (n *node) mark(features *values.Features) {
	n.keys = nil
	for _, c := range n.children {
		n.keys = append(n.keys, c.Name)
	}
	if _, ok := n.LogicalType.Value.(*format.VariantType); ok {
		n.refused = nameOf(n.SchemaElement)
	}
	if len(n.children) == 0 && n.Type.Valid {
		n.typ, n.refused = typeOf(n.SchemaElement)
		isText := n.typ.Kind == values.Text || n.typ.Kind == values.Untyped
		if features != nil && features.IsJSON && n.refused == "" && isText {
			n.typ = values.Type{Kind: values.JSON}
		}
		if s := n.typ.Scale; s > mostScale || s < -mostScale {
			n.refused = nameOf(n.SchemaElement)
		}
	}
	if inside := n.repeatedChild(); inside != nil && !n.isMap() {
		inside.mark(nil)
		if element := inside.element(); element != inside {
			element.mark(features.Element())
		} else {
			inside.mark(features.Element())
		}
		return
	}
	for _, c := range n.children {
		c.mark(features.Field(c.Name))
	}
}

// refusal returns the name of a type at or below a node that is not read, "" if there is none.
func (n *node) refusal() string {
	if n.refused != "" {
		return n.refused
	}
	for _, c := range n.children {
		if r := c.refusal(); r != "" {
			return r
		}
	}
	return ""
}

// featuresOf returns the features of a file.
func featuresOf(meta *format.FileMetaData) *values.Features {
	for _, kv := range meta.KeyValueMetadata {
		if kv.Key == values.FeaturesKey {
			return values.FeaturesOf([]byte(kv.Value))
		}
	}
	return nil
}

package values_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace"
	"millrace/sources/sourcetest"
	"millrace/sources/values"
)

// TestDecimals: the digits are those of a big rational number, for every width and both orders of bytes.
func TestDecimals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "bytes")
		scale := rapid.IntRange(-20, 80).Draw(t, "scale")
		n := new(big.Int).SetBytes(b)
		if b[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		want := new(big.Rat).SetInt(n)
		ten := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil))
		if scale < 0 {
			want.Mul(want, ten)
		} else {
			want.Quo(want, ten)
		}
		little := bytes.Clone(b)
		for i := range little {
			little[i] = b[len(b)-1-i]
		}
		for _, x := range []struct {
			bytes []byte
			isBig bool
		}{{b, true}, {little, false}} {
			v, err := values.Type{Kind: values.Decimal, Scale: scale, IsBig: x.isBig}.Of(x.bytes)
			text, _ := json.Marshal(v)
			got, ok := new(big.Rat).SetString(string(text))
			if err != nil || !ok || got.Cmp(want) != 0 || scale > 0 && len(text)-bytes.IndexByte(text, '.') != scale+1 {
				t.Fatalf("%x at scale %d: %s, %v", x.bytes, scale, text, err)
			}
			if _, isInt := v.(int); isInt != (scale <= 0 && want.Num().IsInt64()) {
				t.Fatalf("%s is %T", text, v)
			}
		}
	})
}

// TestTimes: texts of times say the nanosecond that was stored, or the time is refused.
func TestTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := []values.Unit{values.Seconds, values.Millis, values.Micros, values.Nanos}
		unit := rapid.SampledFrom(units).Draw(t, "unit")
		n := rapid.Int64().Draw(t, "n")
		if rapid.Bool().Draw(t, "near") {
			n %= 1 << 36 * int64(unit)
		}
		b := binary.LittleEndian.AppendUint64(nil, uint64(n))
		v, err := values.Type{Kind: values.Timestamp, Unit: unit, IsMoment: true}.Of(b)
		seconds := new(big.Int)
		rest := new(big.Int)
		seconds.DivMod(big.NewInt(n), big.NewInt(int64(unit)), rest)
		year := 0
		if seconds.IsInt64() && seconds.Int64() < 1<<40 && seconds.Int64() > -1<<40 {
			year = time.Unix(seconds.Int64(), 0).UTC().Year()
		}
		if year < 1 || year > 9999 {
			if !errors.Is(err, millrace.ErrBadSample) {
				t.Fatalf("%d: %v, %v", n, v, err)
			}
			return
		}
		want := time.Unix(seconds.Int64(), rest.Int64()*int64(values.Nanos/unit))
		got, at := time.Parse("2006-01-02 15:04:05.999999999Z07:00", v.(string))
		if err != nil || at != nil || !got.Equal(want) {
			t.Fatalf("%d: %v (%v %v), want %v", n, v, err, at, want)
		}
	})
}

// TestJSON: values are those of encoding/json, objects keep the order of their keys, and integers keep their digits.
func TestJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"z": 1, "a": {"y": [], "b": 2.5}}`:                `{"z":1,"a":{"y":[],"b":2.5}}`,
		`{"a": 1, "b": 2, "a": {"c": null}}`:                `{"a":{"c":null},"b":2}`,
		`[18446744073709551616, -9223372036854775808, 1e2]`: `[18446744073709551616,-9223372036854775808,100]`,
		` "\ud83d\ude00<" `:                                 `"😀<"`,
		`null`:                                              `null`,
	} {
		v, err := values.FromJSON([]byte(text))
		if got, _ := marshal(v); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		``: "it is empty", ` `: "it is empty", `{`: "it ends early", `[1`: "it ends early", `{"a":`: "it ends early",
		`1 2`: "follows the value", `NaN`: "invalid character", `[1,]`: "invalid character",
		`"\ud800"`: "surrogate", `"\udc00"`: "surrogate", `{"\ud800x": 1}`: "surrogate", "\"\xff\"": "not valid UTF-8",
		strings.Repeat("[", 300): "nested deeper than 256", `1e999`: "no number that 64 bits hold",
		strings.Repeat("9", 5000): "an integer of 5000 digits",
	} {
		v, err := values.FromJSON([]byte(text))
		if !errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, %v, want %q", text, v, err, want)
		}
	}
}

func marshal(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSpace(b.String()), err
}

// FuzzJSON compares values with encoding/json.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, {"b": [2.5, null, true, "\n"]}, {}], "a": 1}`, `"\ud83d\ude00"`, `[`, `1e5`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := values.FromJSON(text)
		if err != nil {
			if !errors.Is(err, millrace.ErrBadSample) {
				t.Fatal(err)
			}
			return
		}
		var want, got any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("%q: got %v, encoding/json says %v", text, v, err)
		}
		again, err := json.Marshal(v)
		if err != nil || json.Unmarshal(again, &got) != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %s, %v", text, again, err)
		}
		if _, err := json.Marshal(sourcetest.Maps(v)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDamagedValues: stored bytes that a type cannot have are refused.
func TestDamagedValues(t *testing.T) {
	word := func(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
	for want, c := range map[string]struct {
		t values.Type
		b []byte
	}{
		"a UUID has 3 bytes":       {values.Type{Kind: values.UUID}, []byte("abc")},
		"an integer has 3 bytes":   {values.Type{Kind: values.Signed}, []byte("abc")},
		"number has 3 bytes":       {values.Type{Kind: values.Float}, []byte("abc")},
		"years 1 to 9999 are read": {values.Type{Kind: values.Date}, word(2932897)},
		"from midnight":            {values.Type{Kind: values.Time, Unit: values.Seconds}, word(86400)},
		"it is not valid UTF-8":    {values.Type{Kind: values.Text}, []byte("\xff")},
		"its JSON is damaged":      {values.Type{Kind: values.JSON}, []byte("{")},
		"of 96 bits has 3 bytes":   {values.Type{Kind: values.Impala}, []byte("abc")},
		"and -1 nanoseconds":       {values.Type{Kind: values.Impala}, append(word(-1), 0x8c, 0x3d, 0x25, 0)},
	} {
		if v, err := c.t.Of(c.b); !errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %q", v, err, want)
		}
	}
}

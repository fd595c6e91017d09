package fields_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/values"
)

// bytesTokenizer has one token for each byte.
type bytesTokenizer struct{}

func (bytesTokenizer) Append(dst []uint32, text []byte, _ func()) []uint32 {
	for _, c := range text {
		dst = append(dst, uint32(c))
	}
	return dst
}
func (bytesTokenizer) BOS() (uint32, bool)   { return 256, true }
func (bytesTokenizer) EOS() (uint32, bool)   { return 257, true }
func (bytesTokenizer) Fingerprint() [16]byte { return [16]byte{1} }

// TestTemplates: the text of a template, between bos and eos.
func TestTemplates(t *testing.T) {
	for _, c := range []struct {
		template string
		fields   string
		values   []any
		want     string
	}{
		{"{a}", "a", []any{"x"}, "x"},
		{"{title}\n\n{meta.body}!", "title meta.body", []any{"T", "B"}, "T\n\nB!"},
		{"{{{a}}} {{}}", "a", []any{"x"}, "{x} {}"},
		{"{a}{a}", "a a", []any{"x", "x"}, "xx"},
		{"{a} {b} {c} {d}", "a b c d", []any{1, -2.5, 1e21, 1e-7}, "1 -2.5 1e+21 1e-7"},
		{"{a}|", "a", []any{[]byte("é")}, "é|"},
		{"{a}|", "a", []any{""}, "|"},
		{"{a} {b}", "a b", []any{values.Number("-0.50"), values.Number("18446744073709551615")},
			"-0.50 18446744073709551615"},
	} {
		m, err := fields.ParseTemplate(c.template)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.Fields(), " "); got != c.fields || m.String() != c.template {
			t.Errorf("%q has fields %q, want %q", c.template, got, c.fields)
		}
		maker := fields.NewTemplateMaker(m, sources.NewEncoder(bytesTokenizer{}, true, true), false)
		want := bytesTokenizer{}.Append([]uint32{7, 256}, []byte(c.want), nil)
		for range 2 { // memory of texts is used again
			got, n, err := maker.Document([]uint32{7}, nil, c.values, nil)
			if err != nil || !slices.Equal(got, append(slices.Clone(want), 257)) || n != int64(len(c.want)) {
				t.Errorf("%q: got %v, %d, %v", c.template, got, n, err)
			}
		}
	}
}

// TestTemplatesOfUnfitValues: a missing value is told apart from one that is no text.
func TestTemplatesOfUnfitValues(t *testing.T) {
	m, err := fields.ParseTemplate("{a}")
	if err != nil {
		t.Fatal(err)
	}
	encoder := sources.NewEncoder(bytesTokenizer{}, false, true)
	for _, c := range []struct {
		value   any
		want    string
		missing bool
	}{
		{nil, `field "a" is null`, true},
		{sources.NewMissingError("a", sources.Absent, []string{"b"}), `field "a" is absent; the record has b`, true},
		{"", `field "a" is empty`, true},
		{true, `field "a" is a boolean, not a text or a number`, false},
		{[]any{"x"}, `field "a" is a list, not a text`, false},
		{values.Object{}, `field "a" is an object, not a text`, false},
		{[]uint32{1}, `field "a" is a list of ids, not a text`, false},
		{[]byte("\xff"), `field "a" is not valid UTF-8`, false},
		{math.NaN(), `field "a" is NaN`, false},
	} {
		_, _, err := fields.NewTemplateMaker(m, encoder, true).Document(nil, nil, []any{c.value}, nil)
		var missing *sources.MissingError
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &missing) != c.missing ||
			!errors.Is(err, millrace.ErrBadSample) {
			t.Errorf("%#v: %v, want %q", c.value, err, c.want)
		}
	}
}

// TestUnfitTemplates: the error says what to write.
func TestUnfitTemplates(t *testing.T) {
	for template, want := range map[string]string{
		"{": "no partner", "a } b": "no partner", "{a": "no partner", "{a{b}}": "no partner", "{}": "empty",
		"{a..b}": "empty", "{{a}}": "names no field", strings.Repeat("{a}", 65): "65 fields",
	} {
		if _, err := fields.ParseTemplate(template); !errors.Is(err, millrace.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", template, err, want)
		}
		if !fields.IsTemplate(template) {
			t.Errorf("%q is no template", template)
		}
	}
}

// FuzzTemplate: a template that was read has its fields, and makes a text or an error.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"{a}", "{title}\n\n{body}", "{{x}} {a.b}", "{", "}}", "{a}{b}{c}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		m, err := fields.ParseTemplate(source)
		if err != nil {
			if !errors.Is(err, millrace.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		var values []any
		for range m.Fields() {
			values = append(values, "v")
		}
		maker := fields.NewTemplateMaker(m, sources.NewEncoder(bytesTokenizer{}, false, false), true)
		if _, n, err := maker.Document(nil, nil, values, nil); err != nil || n < int64(len(values)) {
			t.Fatalf("%q: %d bytes, %v", source, n, err)
		}
	})
}

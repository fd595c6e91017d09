package look

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace"
	"millrace/app/config"
	"millrace/app/setup"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/format/registry"
	"millrace/sources/values"
)

// File describes one data file by its first records.
type File struct {
	Path    string  `json:"path"`
	Format  string  `json:"format"`
	Bytes   int64   `json:"bytes"`
	Records *uint64 `json:"records"` // null: only a scan of the whole file could count them
	Random  bool    `json:"random"`  // records can be read at random
	Grain   int64   `json:"grain"`   // mean bytes that are unpacked to read one record at random; 0: one record
	Looked  int     `json:"looked"`  // records that the rest describes
	Fields  []Field `json:"fields"`  // by name; empty for formats of tokens
	Tokens  *Span   `json:"tokens"`  // of the documents of formats of tokens; else null
	Bad     []Bad   `json:"bad"`     // records that cannot be decoded

	isFar     bool // it is in a store
	labels    int  // records whose labels are the ids beside them, or -100
	constants sources.Constants
}

// Field describes one field of the records that were looked at.
type Field struct {
	Name    string   `json:"name"`
	Kinds   []string `json:"kinds"`   // of its values, sorted
	Present int      `json:"present"` // records with a value that is not null
	Length  *Span    `json:"length"`  // bytes of texts, elements of lists; null for other kinds
	Sample  string   `json:"sample"`  // a value as JSON, shortened
	Images  *Images  `json:"images"`  // null: it holds none

	isConstant bool   // it follows from the place of the file: no document is made of it alone
	seen       Images // of its values, if any is an image
	evidence
}

func fieldOf(name string, isConstant bool) Field {
	return Field{Name: name, isConstant: isConstant, seen: Images{Unread: []string{}}}
}

// Span is the least and the greatest of some numbers.
type Span struct {
	Least int `json:"least"`
	Most  int `json:"most"`
}

// Bad is a record that cannot be decoded.
type Bad struct {
	Record uint64 `json:"record"`
	Reason string `json:"reason"`
}

func (s *Span) add(n int) *Span {
	if s == nil {
		return &Span{n, n}
	}
	s.Least, s.Most = min(s.Least, n), max(s.Most, n)
	return s
}

// The parts of a file that are looked at and shown.
const (
	mostLooked = 1000     // records
	mostBytes  = 64 << 20 // of records
	mostIndex  = 1 << 30  // bytes of a file of this host that is scanned to count its records
	mostFields = 200
	mostBad    = 5
	mostSample = 60 // characters
)

// errEnough ends a scan.
var errEnough = errors.New("enough records")

// Describe looks at a file. The error of a file whose format is not clear says how to name it.
func Describe(ctx context.Context, path string) (*File, error) {
	p, err := placeOf(path)
	if err != nil {
		return nil, err
	}
	return p.describe(ctx)
}

// describe describes the first file of the place.
func (p *place) describe(ctx context.Context) (*File, error) {
	path := p.found.Files[0].Path
	opener, err := setup.Format(&config.Source{Format: registry.Name(p.format)}, p.fs)
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", path, err)
	}
	f, err := p.fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkFetched(path, f); err != nil {
		return nil, err
	}
	out := &File{Path: path, Format: p.format, Bytes: f.Size(), Fields: []Field{}, Bad: []Bad{}, isFar: p.isFar,
		constants: p.found.Files[0].Constants}
	what := func() string { return path }
	err = sources.Fence(millrace.ErrDamaged, what, func() error { return out.read(ctx, opener, f) })
	return out, err
}

// read describes an open file.
func (d *File) read(ctx context.Context, format sources.Format, f sources.File) error {
	limits := sources.Limits{SampleBytes: mostBytes}
	s, err := format.Open(ctx, f, sources.Field{}, limits, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	names, err := d.names(ctx, s)
	if err != nil {
		return err
	}
	if err := d.count(ctx, s); err != nil {
		return err
	}
	for _, name := range names {
		d.Fields = append(d.Fields, fieldOf(name, false))
	}
	names = d.addConstants(names)
	open, err := d.constants.Open(ctx, format, f, sources.Field{Others: names}, limits, nil)
	if err != nil {
		return err
	}
	defer open.Close()
	size := int64(0)
	err = open.Scan(ctx, 0, func(r sources.Record) error {
		if d.Looked++; d.Looked > mostLooked || size > mostBytes {
			d.Looked--
			return errEnough
		}
		size += r.Raw
		d.add(&r)
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// names returns the fields of the records, without those that no path can name.
func (d *File) names(ctx context.Context, s sources.Shard) ([]string, error) {
	named := s.Abilities().Names
	if named == nil {
		return nil, nil
	}
	names, err := named.FieldNames(ctx)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := fields.Parse(name)
		return err != nil
	})
	return names[:min(len(names), mostFields)], nil
}

// addConstants adds the fields that the records have by the file's place alone.
func (d *File) addConstants(names []string) []string {
	if len(names) == 0 { // no records with fields
		return nil
	}
	for _, c := range d.constants {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
			d.Fields = append(d.Fields, fieldOf(c.Name, true))
		}
	}
	return names
}

// mostScanned bounds the bytes of a file that is scanned as a whole.
func (d *File) mostScanned() int64 {
	if d.isFar {
		return mostBytes
	}
	return mostIndex
}

func (d *File) count(ctx context.Context, s sources.Shard) error {
	d.Random = s.Seekable()
	if n, ok := s.Count(); ok {
		d.Records = &n
	} else if d.Bytes <= d.mostScanned() {
		var n uint64
		if err := s.Scan(ctx, 0, func(sources.Record) error { n++; return nil }); err != nil {
			return err
		}
		d.Records = &n
	}
	if g := s.Abilities().Grains; g != nil {
		var err error
		if d.Grain, err = g.Grain(); err != nil {
			return err
		}
	}
	return nil
}

// add describes one more record.
func (d *File) add(r *sources.Record) {
	if r.Err != nil {
		if len(d.Bad) < mostBad {
			d.Bad = append(d.Bad, Bad{r.Number, r.Err.Error()})
		}
		return
	}
	if r.Tokens != nil {
		d.Tokens = d.Tokens.add(len(r.Tokens))
	}
	for i, v := range r.Others {
		d.Fields[i].add(v)
	}
	d.compare(r.Others)
}

// add describes one more value of the field.
func (x *Field) add(v any) {
	if v == nil {
		return
	}
	x.Present++
	if !x.isConstant {
		x.evidence.add(v)
	}
	if x.seen.add(v); x.seen.Read > 0 {
		x.Images = &x.seen
	}
	kind := strings.TrimPrefix(strings.TrimPrefix(fields.KindOf(v), "a "), "an ")
	switch v := v.(type) {
	case string:
		x.Length = x.Length.add(len(v))
	case []byte:
		x.Length = x.Length.add(len(v))
	case []uint32:
		x.Length = x.Length.add(len(v))
	case []any:
		kind = kindOfList(v)
		x.Length = x.Length.add(len(v))
	case values.Object:
		kind = "object of " + strings.Join(v.Keys, ", ")
	}
	if !slices.Contains(x.Kinds, kind) {
		x.Kinds = append(x.Kinds, kind)
		slices.Sort(x.Kinds)
	}
	if x.Sample == "" || x.Sample == `""` {
		x.Sample = sampleOf(v)
	}
}

// kindOfList returns the kind of a list with that of its first element.
func kindOfList(v []any) string {
	if len(v) == 0 {
		return "list"
	}
	if object, ok := v[0].(values.Object); ok {
		return "list of objects of " + strings.Join(object.Keys, ", ")
	}
	return "list of " + strings.TrimPrefix(fields.KindOf(v[0]), "a ") + "s"
}

// sampleOf returns a value as JSON, shortened.
func sampleOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%v", v)
	}
	text := strings.ToValidUTF8(string(b), "\ufffd")
	if utf8.RuneCountInString(text) > mostSample {
		text = string([]rune(text)[:mostSample-1]) + "…"
	}
	return text
}

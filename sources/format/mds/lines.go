package mds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/extents"
	"millrace/sources/format/parts/packed"
)

// Shards of lines are those of Streaming's JSONWriter, CSVWriter, TSVWriter and XSVWriter. Beside each lies a file with
// `.meta` in its name: the table of samples as in an MDS shard, and a description behind it. Samples are JSON objects,
// or values with a separator between them, behind a first line with the names. Nothing is quoted. A sample ends with
// the newline of the description.

// metaPath returns the path of the file beside a shard of lines, "" for other shards.
func metaPath(path string) string {
	raw := rawPath(path)
	if _, ok := separatorOf(raw); ok {
		return raw + ".meta" + path[len(raw):]
	}
	return ""
}

// separatorOf returns the separator that the description of a shard of lines leaves out, and whether the ending of a
// name is that of one.
func separatorOf(raw string) (separator string, ok bool) {
	switch strings.ToLower(filepath.Ext(raw)) {
	case ".json", ".xsv":
		return "", true
	case ".csv":
		return ",", true
	case ".tsv":
		return "\t", true
	}
	return "", false
}

// rawPath returns the path of a shard without the ending of its packing.
func rawPath(path string) string {
	if ext := filepath.Ext(path); packed.KindOf(named(path)) != packed.Plain {
		return strings.TrimSuffix(path, ext)
	}
	return path
}

// described is the description of a shard of lines.
type described struct {
	Version   int               `json:"version"`
	Format    string            `json:"format"`
	Columns   map[string]string `json:"columns"` // JSON: encodings by name
	Names     []string          `json:"column_names"`
	Encodings []string          `json:"column_encodings"`
	Separator string            `json:"separator"`
	Newline   string            `json:"newline"`
}

// openLines opens a shard of lines.
func (ff Format) openLines(ctx context.Context, f sources.File, field sources.Field,
	limit int64) (sources.Shard, error) {
	meta, err := ff.readMeta(f)
	if err != nil {
		return nil, err
	}
	offsets, behind, err := extents.ReadOffsets(ctx, meta, 0)
	if err != nil {
		return nil, err
	}
	d := described{}
	d.Separator, _ = separatorOf(rawPath(f.Name()))
	if err := json.Unmarshal(meta.text[behind:], &d); err != nil {
		return nil, extents.Misfit(meta, "the description of its columns is no JSON: %v", err)
	}
	c, head, err := d.config(meta)
	if err != nil {
		return nil, err
	}
	kind := packed.KindOf(f)
	if err := checkLines(f, kind, offsets, head); err != nil {
		return nil, err
	}
	said, err := ff.indexes.of(ff.fs, f)
	if err != nil {
		return nil, err
	}
	_, end := offsets.Bounds()
	plain := &config{Names: d.Names, Encodings: d.Encodings}
	if err := said.compare(f, offsets.Count(), end, plain); err != nil {
		return nil, err
	}
	w, err := c.resolve(f, field)
	if err != nil {
		return nil, err
	}
	s := &extents.Shard{File: f, Table: offsets, Limit: limit, Names: c.readable(f), New: func() extents.Decoder {
		out := newDecoder(c, w)
		out.line = &line{newline: []byte(d.Newline), separator: []byte(d.Separator), isObject: d.Columns != nil}
		return out
	}}
	if kind != packed.Plain {
		s.Stream = func() (io.ReadCloser, error) { return packed.NewReader(f, kind) }
	}
	return s, nil
}

// checkLines compares the table of a shard of lines with its file: samples begin behind the names and end with it.
func checkLines(f sources.File, kind packed.Kind, offsets extents.Offsets, head string) error {
	first, end := offsets.Bounds()
	if first != int64(len(head)) {
		return extents.Misfit(f, "its samples begin at byte %d, and its first line has %d", first, len(head))
	}
	if kind == packed.Plain && end != f.Size() {
		return extents.Misfit(f, "its samples end at byte %d of %d", end, f.Size())
	}
	if len(head) == 0 {
		return nil
	}
	is := make([]byte, len(head))
	if kind == packed.Plain {
		if err := sources.ReadFull(f, is, 0); err != nil {
			return err
		}
	} else {
		r, err := packed.NewReader(f, kind)
		if err != nil {
			return err
		}
		defer r.Close()
		if _, err := io.ReadFull(r, is); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
	}
	if string(is) != head {
		return extents.Misfit(f, "its first line is %.60q, and its description says %.60q", is, head)
	}
	return nil
}

// config returns the columns, and the line before the samples.
func (d *described) config(meta sources.File) (c *config, head string, err error) {
	c = &config{Version: d.Version, Format: "mds"}
	names, encodings := d.Names, d.Encodings
	if d.Columns != nil {
		for name := range d.Columns {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			encodings = append(encodings, d.Columns[name])
		}
	}
	switch {
	case d.Version != 2:
		return nil, "", extents.Misfit(meta, "its version is %d, want 2", d.Version)
	case len(names) > mostColumns || len(encodings) != len(names) || d.Newline == "":
		return nil, "", extents.Misfit(meta, "it has %d names and %d encodings of columns, and the newline %q",
			len(names), len(encodings), d.Newline)
	case d.Columns == nil && d.Separator == "":
		return nil, "", extents.Misfit(meta, "it has no separator of columns")
	}
	for i, name := range names {
		stored := map[string]string{"str": "str", "int": "str_int", "float": "str_float"}[encodings[i]]
		if stored == "" {
			return nil, "", millrace.Errorf(millrace.ErrInvalid, "open %s: column %q has the encoding %q, and str, "+
				"int and float are read", meta.Name(), name, encodings[i])
		}
		c.Names, c.Encodings, c.Sizes = append(c.Names, name), append(c.Encodings, stored), append(c.Sizes, nil)
	}
	if d.Columns != nil {
		c.isObject = true
		return c, "", nil
	}
	return c, strings.Join(names, d.Separator) + d.Newline, nil
}

// meta is the unpacked file beside a shard of lines.
type meta struct {
	named
	text []byte
}

// readMeta reads the file beside a shard of lines.
func (ff Format) readMeta(f sources.File) (*meta, error) {
	path := metaPath(f.Name())
	file, err := ff.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, millrace.Errorf(millrace.ErrDamaged, "open %s: %s, which has the places of its samples, is not "+
			"beside it: %w; copy it there, or read the file by its own format", f.Name(), path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the description of %s: %w", f.Name(), err)
	}
	defer file.Close()
	var r io.Reader = sources.NewReader(file, 0, file.Size())
	if kind := packed.KindOf(file); kind != packed.Plain {
		unpacked, err := packed.NewReader(file, kind)
		if err != nil {
			return nil, err
		}
		defer unpacked.Close()
		r = unpacked
	}
	const most = mostTable + mostConfig
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most {
		return nil, extents.Misfit(file, "%w", sources.Limited("write the set again with smaller shards",
			"it has more than %d bytes", most))
	}
	return &meta{named(path), text}, nil
}

// ReadAt implements sources.File.
func (m *meta) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(m.text).ReadAt(p, off)
}

// Size implements sources.File.
func (m *meta) Size() int64 { return int64(len(m.text)) }

// named is a file of which only the name counts.
type named string

// Name implements sources.File.
func (n named) Name() string { return string(n) }

// ReadAt implements sources.File.
func (named) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }

// Size implements sources.File.
func (named) Size() int64 { return 0 }

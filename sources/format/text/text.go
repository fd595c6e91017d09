// Package text reads text files: a file, a line or a paragraph is a document. A source of this format is a file, a
// pattern, or a tree such as a code repository. The first bytes of a file decide whether it is unpacked.
//
// The fields of a document follow from its name: path (below the source's root), name, extension and language. The
// ending of a packing is no extension. A file that is not UTF-8, or has a zero byte, costs its document.
package text

import (
	"bytes"
	"context"
	"errors"
	"path"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/format/parts/rows"
	"millrace/sources/format/parts/valid"
	"millrace/sources/values"
)

// Format opens text files.
type Format struct {
	Record Record // a document
	// Windows keeps memory of random reads of lines and paragraphs for later ones. nil keeps none.
	Windows *rows.Windows
}

var (
	_ sources.Format = Format{}
)

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "text" }

// Traits implements sources.Format.
func (ff Format) Traits() sources.Traits {
	return sources.Traits{NameFields: nameFields(), Settings: ff.settings()}
}

// nameFields returns the fields that follow from a file's name.
func nameFields() []string { return []string{"path", "name", "extension", "language"} }

// settings returns the settings that decide documents.
func (ff Format) settings() string {
	if ff.Record == File {
		return ""
	}
	return string(ff.Record)
}

// Open does not read a file that is one document; such a file needs no index.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits, blob []byte) (
	sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := fields.NewReader(field); err != nil {
		return nil, err
	}
	if ff.settings() != "" {
		return ff.openRecords(ctx, f, field, lim, blob)
	}
	return &shard{file: f, field: field, limit: lim.SampleBytes}, nil
}

// shard is one file.
type shard struct {
	file  sources.File
	field sources.Field
	limit int64
}

// Count implements sources.Shard.
func (s *shard) Count() (uint64, bool) { return 1, true }

// Abilities implements sources.Shard.
func (s *shard) Abilities() sources.Abilities { return sources.Abilities{} }

// Seekable implements sources.Shard.
func (s *shard) Seekable() bool { return true }

// Index implements sources.Shard. A file needs none.
func (s *shard) Index(ctx context.Context, _ func(int64)) ([]byte, error) { return nil, ctx.Err() }

// Close implements io.Closer. The caller of Open closes the file.
func (s *shard) Close() error { return nil }

// Scan implements sources.Shard.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	if err := ctx.Err(); err != nil || from > 0 {
		return err
	}
	r, err := s.record(ctx)
	if err != nil {
		return err
	}
	return fn(r)
}

// Read implements sources.Shard.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	if len(numbers) > 0 && numbers[len(numbers)-1] > 0 {
		return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: a text file has one",
			numbers[len(numbers)-1], s.file.Name())
	}
	if len(numbers) == 0 {
		return ctx.Err()
	}
	return s.Scan(ctx, 0, fn)
}

func (s *shard) record(ctx context.Context) (sources.Record, error) {
	b, err := s.content(ctx)
	r := sources.Record{Raw: int64(len(b))}
	if errors.Is(err, millrace.ErrBadSample) {
		r.Raw, r.Err = s.file.Size(), err
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if r.Err = check(b); r.Err != nil {
		return r, nil
	}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	x, err := fields.NewReader(s.field)
	if err != nil {
		return r, err
	}
	if len(s.field.Others) == 0 {
		x.Fill(&r, values.Object{Keys: []string{"text"}, Values: []any{b}})
		return r, nil
	}
	x.Fill(&r, valuesOf(s.file, string(b)))
	return r, nil
}

// check returns the reason why bytes are no text.
func check(b []byte) error {
	switch at := bytes.IndexByte(b, 0); {
	case bytes.HasPrefix(b, []byte("\xff\xfe")), bytes.HasPrefix(b, []byte("\xfe\xff")):
		return millrace.Errorf(millrace.ErrBadSample, "the file is UTF-16; text is read as UTF-8")
	case at >= 0:
		return millrace.Errorf(millrace.ErrBadSample, "the file is binary: byte %d is zero", at)
	case !valid.UTF8(b):
		return millrace.Errorf(millrace.ErrBadSample, "the file is not valid UTF-8")
	}
	return nil
}

// named is implemented by files that know the name of their shard, below the root of the source.
type named interface{ ShardName() string }

// valuesOf returns the fields of a document of a file.
func valuesOf(file sources.File, text string) values.Object {
	name := file.Name()
	if n, ok := file.(named); ok {
		name = n.ShardName()
	}
	base := path.Base(name)
	bare := withoutPacking(base)
	var out values.Object
	out.Add("text", text)
	out.Add("path", name)
	out.Add("name", base)
	out.Add("extension", strings.TrimPrefix(path.Ext(bare), "."))
	if language := languageOf(bare); language != "" {
		out.Add("language", language)
	}
	return out
}

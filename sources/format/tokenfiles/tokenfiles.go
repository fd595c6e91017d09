// Package tokenfiles reads files of plain token ids: those of dolma and OLMo-core (.npy with .csv.gz), of datatrove and
// nanotron (.ds with .ds.index), and of nanoGPT, llm.c and NumPy.
//
// A record is a document. Documents end where the file beside the ids says so. If the source names the id that ends
// documents, they end behind each of these ids, and the file beside is not read. The ids behind the last such id are a
// document of their own, so no id of a file is lost. In an array of NumPy with two dimensions, each row is a document.
//
// Most of these files have no header. The headers of NumPy and llm.c are recognised by content.
package tokenfiles

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/ids"
)

// Options are the facts that the files may leave out.
type Options struct {
	DType  string // of the ids, by NumPy's name; empty: the files show it
	EOS    uint32 // the id that ends documents
	HasEOS bool
}

// Format opens files of plain token ids.
type Format struct {
	name   string
	fs     sources.FS
	opts   Options
	beside beside
}

// beside is the kind of the file beside the ids that has the places of documents.
type beside int

const (
	nothing beside = iota
	csvRows        // of dolma
	ends           // of datatrove
)

// OLMo returns the format olmo over files: .npy with .csv.gz beside it.
func OLMo(files sources.FS, o Options) Format { return newFormat("olmo", files, csvRows, o) }

// Datatrove returns the format datatrove over files: .ds with .ds.index beside it.
func Datatrove(files sources.FS, o Options) Format { return newFormat("datatrove", files, ends, o) }

// Tokens returns the format tokens over files: ids alone.
func Tokens(files sources.FS, o Options) Format { return newFormat("tokens", files, nothing, o) }

func newFormat(name string, files sources.FS, b beside, o Options) Format {
	if o.HasEOS {
		b = nothing
	}
	return Format{name: name, fs: files, opts: o, beside: b}
}

var (
	_ sources.Format = Format{}
)

// Name returns the format's word in the mixture file.
func (ff Format) Name() string { return ff.name }

// Traits implements sources.Format.
func (ff Format) Traits() sources.Traits {
	return sources.Traits{Companions: ff.companions, Settings: ff.settings()}
}

// settings returns the settings that decide documents.
func (ff Format) settings() string {
	text := ""
	if ff.opts.DType != "" {
		text = "dtype=" + ff.opts.DType
	}
	if ff.opts.HasEOS {
		text += fmt.Sprintf(" eos=%d", ff.opts.EOS)
	}
	return strings.TrimSpace(text)
}

// companions names the file with the places of documents.
func (ff Format) companions(path string) []string {
	switch ff.beside {
	case csvRows:
		return []string{strings.TrimSuffix(path, ".npy") + ".csv.gz"}
	case ends:
		return []string{path + ".index"}
	}
	return nil
}

// Open reads the first bytes of the file. index has the places of documents.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	index []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := ids.CheckField(f, field); err != nil {
		return nil, err
	}
	h, err := readHead(f)
	if err != nil {
		return nil, err
	}
	p := &plan{format: ff, file: f, head: h, limits: lim}
	if err := p.settle(index); err != nil {
		return nil, err
	}
	if index == nil {
		return &fresh{plan: p}, nil
	}
	table, err := ids.OpenTable(f.Name(), p.layout, index)
	if err != nil {
		return nil, err
	}
	return indexed{p, ids.New(f, p.layout, table, lim)}, nil
}

// plan has the facts with which the documents of a file are found.
type plan struct {
	format Format
	file   sources.File
	head   head
	limits sources.Limits
	layout ids.Layout // without a dtype if only the rows beside the ids show it
}

// settle fills in the layout. The dtype follows from the file's header, from the options, or from an index.
func (p *plan) settle(index []byte) error {
	p.layout = ids.Layout{Size: p.file.Size(), From: p.head.from}
	name, said := p.head.dtype, p.format.opts.DType
	switch {
	case name != "" && said != "" && name != said:
		return millrace.Errorf(millrace.ErrInvalid, "open %s: its header says %s, and the source says `dtype: %s`; "+
			"leave `dtype` out", p.file.Name(), name, said)
	case name == "" && said == "" && p.format.beside != nothing && p.layout.Size > 0:
		if index == nil {
			return nil // the last document's end will show it
		}
		name = byWidth(ids.WidthOf(index))
	case name == "":
		name = said
	}
	if name == "" && p.layout.Size == 0 {
		name = "uint16"
	}
	if name == "" {
		return millrace.Errorf(millrace.ErrInvalid,
			"open %s: it has no header that shows the type of its ids; add `dtype: uint16` or `dtype: uint32`",
			p.file.Name())
	}
	d, ok := ids.ByName(name)
	if !ok {
		return millrace.Errorf(millrace.ErrInvalid, "open %s: its ids have the type %s, which is no type of token ids",
			p.file.Name(), name)
	}
	return p.setType(d)
}

// byWidth returns the type that the writers of ids without a header use, "" for another width.
func byWidth(bytes int) string {
	switch bytes {
	case 2:
		return "uint16"
	case 4:
		return "uint32"
	}
	return ""
}

func (p *plan) setType(d ids.DType) error {
	if n := p.layout.Size - p.layout.From; n%int64(d.Size) != 0 {
		return millrace.Errorf(millrace.ErrDamaged, "open %s: its %d bytes of ids are no whole number of %s",
			p.file.Name(), n, d.Name)
	}
	p.layout.DType = d
	return nil
}

// Index finds the documents.
func (p *plan) Index(ctx context.Context, progress func(bytes int64)) ([]byte, error) {
	found := *p
	b, err := found.documents(ctx, progress)
	if err != nil {
		return nil, err
	}
	return b.Encode(found.layout), nil
}

// indexed is a file whose documents are known.
type indexed struct {
	*plan
	*ids.Shard
}

// fresh is a file whose documents are not known yet.
type fresh struct {
	*plan
	mu    sync.Mutex
	found *ids.Shard // of the first scan
}

// Count implements sources.Shard. Only the index has the count.
func (s *fresh) Count() (uint64, bool) { return 0, false }

// Abilities implements sources.Shard.
func (s *fresh) Abilities() sources.Abilities { return sources.Abilities{} }

// Seekable implements sources.Shard.
func (s *fresh) Seekable() bool { return true }

// Close implements io.Closer. The caller of Open closes the file.
func (s *fresh) Close() error { return nil }

// Scan implements sources.Shard. The first scan finds the documents.
func (s *fresh) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	found, err := s.ready(ctx)
	if err != nil {
		return err
	}
	return found.Scan(ctx, from, fn)
}

func (s *fresh) ready(ctx context.Context) (*ids.Shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		p := *s.plan
		b, err := p.documents(ctx, func(int64) {})
		if err != nil {
			return nil, err
		}
		s.found = ids.New(p.file, p.layout, b.Table(), p.limits)
	}
	return s.found, nil
}

// Read implements sources.Shard.
func (s *fresh) Read(context.Context, []uint64, func(sources.Record) error) error {
	return millrace.Errorf(millrace.ErrInvalid, "read records of %s: no index was given", s.file.Name())
}

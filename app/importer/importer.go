// Package importer turns the data configuration of another loader or trainer into a mixture file.
//
// Each foreign file is one of the kinds of [Kinds]; its content shows which. Every key that has an equivalent is
// carried over. Every other key becomes a comment of the mixture file, so no key is dropped silently.
package importer

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace"
	"millrace/app/config"
)

// kind is a kind of foreign file.
type kind struct {
	name  string
	shows func(top value) bool // the file's content is of this kind
	read  func(m *mixture, top value) error
}

func kinds() []kind {
	return []kind{
		{"energon", isEnergon, readEnergon},
		{"olmo", isOLMo, readOLMo},
		{"nanotron", isNanotron, readNanotron},
		{"levanter", isLevanter, readLevanter},
		{"streaming", isStreaming, readStreaming},
		{"axolotl", isAxolotl, readAxolotl},
		{"llamafactory", isLLaMAFactory, readLLaMAFactory},
		{"megatron", isMegatron, readMegatron},
	}
}

// Kinds returns the names of the kinds of files that can be imported.
func Kinds() (names []string) {
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// File is a foreign file.
type File struct {
	Path, Kind string // Kind is empty if the content is to show it
	Content    []byte
	Exists     func(path string) bool // on the disk
}

// mostForeign bounds a file to import, in bytes.
const mostForeign = 64 << 20

// Import is Mixture for a file on the disk. The path "-" is stdin.
func Import(path, kind string, stdin io.Reader) (out []byte, notes []string, err error) {
	in := stdin
	if path != "-" {
		f, err := config.OpenFile(path)
		if err != nil {
			return nil, nil, millrace.Errorf(millrace.ErrInvalid, "millrace import: %w", err)
		}
		defer f.Close()
		in = f
	}
	content, err := io.ReadAll(io.LimitReader(in, mostForeign))
	if err != nil {
		return nil, nil, millrace.Errorf(millrace.ErrInvalid, "millrace import: read %s: %w", path, err)
	}
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	return Mixture(File{Path: path, Kind: kind, Content: content, Exists: exists})
}

// Mixture returns the mixture file for a foreign file, and a note for each part of it that has no equivalent. Relative
// paths of the file are taken as relative to its directory.
func Mixture(f File) (out []byte, notes []string, err error) {
	path, kindName := f.Path, f.Kind
	top, err := parse(f.Content)
	if err != nil {
		return nil, nil, millrace.Errorf(millrace.ErrInvalid, "import %s: it is neither YAML nor JSON: %v", path, err)
	}
	for _, k := range kinds() {
		if kindName != k.name && (kindName != "" || !k.shows(top)) {
			continue
		}
		m := &mixture{from: path, kind: k.name, dir: filepath.Dir(path), exists: f.Exists}
		if err := k.read(m, top); err != nil {
			return nil, nil, millrace.Errorf(millrace.ErrInvalid, "import %s as a file of %s: %v", path, k.name, err)
		}
		if len(m.sources) == 0 {
			return nil, nil, millrace.Errorf(millrace.ErrInvalid, "import %s as a file of %s: it names no data", path,
				k.name)
		}
		m.rest("", top)
		m.settleTemplates()
		out = m.encode() // it may add notes
		return out, m.said(), nil
	}
	if kindName != "" {
		return nil, nil, millrace.Errorf(millrace.ErrInvalid, "import %s: no kind is called %q; there are %s", path,
			kindName, strings.Join(Kinds(), ", "))
	}
	return nil, nil, millrace.Errorf(millrace.ErrInvalid, "import %s: its content is of none of the known kinds; "+
		"name one with --format: %s", path, strings.Join(Kinds(), ", "))
}

// setting is a key of the mixture file with its value in YAML.
type setting struct{ key, value string }

// source is a source of the mixture file.
type source struct {
	name     string
	settings []setting
	weight   string // "" if the file gives none
	notes    []string
}

func (s *source) set(key, text string) {
	if text != "" {
		s.settings = append(s.settings, setting{key, text})
	}
}

// hub sets the path of a data set of Hugging Face's hub, with its configuration and its split. Most have Parquet files.
func (s *source) hub(id, config, split string) {
	s.set("format", "parquet")
	s.set("path", quote("hf://datasets/"+id))
	s.part(config, split)
}

// part sets a configuration and a split. A part of a split has no equivalent.
func (s *source) part(config, split string) {
	if config != "" {
		s.set("config", quote(config))
	}
	if name, _, cut := strings.Cut(split, "["); name != "" {
		if s.set("split", quote(name)); cut {
			s.notes = append(s.notes, "split: "+split+": the whole split is read")
		}
	}
}

// milestone is a stage of a schedule of weights.
type milestone struct {
	name, from string
	weights    []setting
}

// mixture collects a mixture file.
type mixture struct {
	from, kind, dir string
	exists          func(path string) bool
	top             []setting
	unit            string
	sources         []*source
	schedule        []milestone
	notes           []string
}

func (m *mixture) set(key string, v value) {
	if v.text() != "" {
		m.top = append(m.top, setting{key, v.text()})
	}
}

func (m *mixture) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// settleTemplates writes ChatML for conversations whose tokenizer the file does not name: no other template is known.
func (m *mixture) settleTemplates() {
	for _, s := range m.sources {
		at := func(key string) int {
			return slices.IndexFunc(s.settings, func(x setting) bool { return x.key == key })
		}
		i := at("template")
		if m.given("tokenizer") != "" || i < 0 && at("messages") < 0 || i >= 0 && s.settings[i].value != "tokenizer" {
			continue
		}
		if i >= 0 {
			s.settings[i].value = "chatml"
		} else {
			s.set("template", "chatml")
		}
		s.notes = append(s.notes, "the file names no tokenizer, so no template is known; chatml is an example")
	}
}

// said returns every note of the mixture file, in its order.
func (m *mixture) said() (notes []string) {
	for _, s := range m.sources {
		for _, n := range s.notes {
			notes = append(notes, "source "+s.name+": "+oneLine(n))
		}
	}
	for _, n := range m.notes {
		notes = append(notes, oneLine(n))
	}
	return notes
}

// rest notes every key of a mapping that the importer did not use.
func (m *mixture) rest(path string, v value) {
	for _, left := range v.left(path) {
		m.note("%s", left)
	}
}

// add returns a new source of this name. Names become distinct and fit the rules of names.
func (m *mixture) add(name string) *source {
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	if clean = strings.Trim(clean, "-."); clean == "" {
		clean = "source"
	}
	unique := clean
	for n := 2; m.named(unique) != nil; n++ {
		unique = fmt.Sprintf("%s-%d", clean, n)
	}
	s := &source{name: unique}
	m.sources = append(m.sources, s)
	return s
}

func (m *mixture) named(name string) *source {
	for _, s := range m.sources {
		if s.name == name {
			return s
		}
	}
	return nil
}

// path returns a path of the foreign file as the mixture file needs it, in YAML.
func (m *mixture) path(p string) string {
	if p != "" && !filepath.IsAbs(p) && !strings.Contains(p, "://") {
		p = filepath.Join(m.dir, p)
	}
	return quote(p)
}

// paths returns a list of paths in YAML.
func (m *mixture) paths(list []string) string {
	if len(list) == 1 {
		return m.path(list[0])
	}
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = m.path(p)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

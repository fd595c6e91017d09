package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"millrace/app/config"
	"millrace/app/setup"
	"millrace/sources"
)

// sample is one small dataset: the files of a source and the way to read them.
type sample struct {
	name   string // FORMAT/NAME
	files  map[string][]byte
	damage []string // the files that are damaged; nil: all
	source config.Source
	path   string // of the source, below the sample's directory
	text   string
	others []string

	// guards are the facts that the bytes fix; they decide the rules of a case.
	guards guards
}

// guards are the promises of a format that hold for every damaged file of a sample.
type guards struct {
	content bool // checksums cover all content: a record is as it was, or bad
	count   bool // the numbers of records are written down: there are never fewer in a file that is not cut
	end     bool // the end is marked: a cut is an error
}

// format is the name of the sample's format.
func (s *sample) format() string { return string(s.source.Format) }

// names returns the files that may be damaged, in a fixed order.
func (s *sample) names() []string {
	if s.damage != nil {
		return s.damage
	}
	return slices.Sorted(maps.Keys(s.files))
}

// write writes the sample's files below dir.
func (s *sample) write(dir string) error {
	for name, b := range s.files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// spec returns the source below dir.
func (s *sample) spec(dir string) (sources.Spec, error) {
	format, err := setup.Format(&s.source, sources.OSFS())
	return sources.Spec{
		Name: "x", Format: format, Base: dir, Patterns: []string{s.path}, Epochs: 1,
		Field: sources.Field{Text: s.text, Others: s.others}, Limits: sources.Limits{SampleBytes: 1 << 20},
	}, err
}

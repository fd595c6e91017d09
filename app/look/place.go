package look

import (
	"fmt"

	"millrace"
	"millrace/app/config"
	"millrace/app/setup"
	"millrace/sources"
	"millrace/sources/find"
	"millrace/sources/format/registry"
)

// place has the file system of a path's files, and the files that a source reads.
type place struct {
	fs     sources.FS
	isFar  bool // a store
	format string
	found  find.Resolved
	keys   []string // of the source: the chosen part of a directory that has several, the version of a table
	notes  []string // the parts that are left out
}

// placeOf finds the files of a path. If its layout names parts, one is chosen.
func placeOf(path string) (*place, error) {
	alone := &config.Source{Name: "data", Path: config.Patterns{path}}
	p := &place{fs: setup.Files(alone, nil), isFar: find.IsURL(path)}
	tree, _ := p.fs.(find.Tree)
	var unclear *find.Unclear
	var err error
	if p.isFar {
		p.format, unclear, err = find.FormatIn(tree, path)
	} else {
		p.format, unclear = find.Format(".", []string{path})
	}
	if err != nil {
		return nil, err
	}
	if unclear != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "look at %s: its format %s; %s", path, unclear.Why,
			unclear.Cure)
	}
	format, err := setup.Format(&config.Source{Format: registry.Name(p.format)}, p.fs)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	q := find.Query{Base: ".", Patterns: []string{path}, Format: p.format, Rows: sources.RowsOf(p.fs, format)}
	layouts, err := find.Parts(tree, q)
	if err != nil {
		return nil, err
	}
	if len(layouts) > 0 {
		q.Config, q.Split = layouts[0].Propose()
	}
	if p.found, err = find.Resolve(tree, q); err != nil {
		return nil, err
	}
	for _, key := range [][2]string{{"config", q.Config}, {"split", q.Split}} {
		if key[1] != "" {
			p.keys = append(p.keys, key[0]+": "+plain(key[1]))
		}
	}
	if len(p.found.Versions) == 1 { // so that the source keeps its files when the table gets a new version
		p.keys = append(p.keys, fmt.Sprintf("version: %d", p.found.Versions[0]))
	}
	for _, l := range layouts {
		if left := l.LeftOut(q.Config, q.Split); left != "" {
			p.notes = append(p.notes, left)
		}
	}
	return p, nil
}

// bytes returns the size of the files together.
func (p *place) bytes() (total int64, err error) {
	for _, file := range p.found.Files {
		f, err := p.fs.Open(file.Path)
		if err != nil {
			return 0, err
		}
		total += f.Size()
		if err := f.Close(); err != nil {
			return 0, fmt.Errorf("close %s: %w", file.Path, err)
		}
	}
	return total, nil
}

// checkFetched refuses a file that stands for content which was not fetched.
func checkFetched(path string, f sources.File) error {
	head := make([]byte, min(f.Size(), find.MostPlaceholder))
	if err := sources.ReadFull(f, head, 0); err != nil {
		return err
	}
	return find.CheckContent(path, head, f.Size())
}

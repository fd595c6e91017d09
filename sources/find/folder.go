package find

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// folders are directories of this host, or of a store.
type folders interface {
	// names returns the names of the files and directories in a directory, none if it cannot be read.
	names(dir string) []string
	// read returns the content of a small file. It returns false if there is none.
	read(file string) ([]byte, bool, error)
}

// local are the directories of this host.
type local struct{}

func (local) names(dir string) (out []string) {
	entries, _ := os.ReadDir(dir) // a directory that cannot be read is an error of its walk
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func (local) read(file string) ([]byte, bool, error) { return readSmall(file) }

// stored are the directories of a store, of which all files below one were listed.
type stored struct {
	tree Tree
	in   map[string][]string // the names in each directory
	seen map[string]bool     // paths of files and directories
}

// newStored returns the directories from one URL downwards.
func newStored(tree Tree, dir string, all []string) stored {
	s := stored{tree: tree, in: map[string][]string{}, seen: map[string]bool{dir: true}}
	for _, file := range all {
		for at := file; !s.seen[at] && len(at) > len(dir); at = parent(at) {
			s.seen[at] = true
			s.in[parent(at)] = append(s.in[parent(at)], at[strings.LastIndexByte(at, '/')+1:])
		}
	}
	return s
}

func (s stored) names(dir string) []string { return s.in[strings.TrimSuffix(dir, "/")] }

func (s stored) read(file string) ([]byte, bool, error) {
	if !s.seen[file] {
		return nil, false, nil
	}
	b, err := s.tree.Read(file, mostState)
	return b, err == nil, err
}

// below joins a directory and a name of either kind.
func below(dir, name string) string {
	if IsURL(dir) {
		return strings.TrimSuffix(dir, "/") + "/" + path.Clean(name)
	}
	return filepath.Join(dir, name)
}

package find

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace"
	"millrace/sources/find/layout"
)

// The files in which the Hugging Face datasets library describes a directory.
const (
	savedSet   = "state.json"        // save_to_disk of a Dataset
	savedSplit = "dataset_dict.json" // save_to_disk of a DatasetDict
	mostState  = 16 << 20            // bytes of such a file that are read
)

// saved is the list of data files of a directory that save_to_disk wrote.
type saved struct {
	dir   string
	known bool // there is a list
	files []string
}

// isMarked reports whether a directory has a file that may name parts.
func isMarked(at folders, dir string) bool {
	return slices.ContainsFunc(at.names(dir), func(name string) bool {
		return name == savedSplit || slices.Contains(layout.Cards(), name)
	})
}

// strayArrow returns the reason why an Arrow file of a directory is no data of its dataset, "" if it is.
func (f *sifter) strayArrow(file string) (why string, err error) {
	dir, name := filepath.Split(file)
	if f.saved.dir != dir {
		if f.saved, err = readSaved(dir); err != nil {
			return "", err
		}
	}
	switch {
	case f.saved.known && !slices.Contains(f.saved.files, name):
		return savedSet + " does not list it", nil
	case !f.saved.known && strings.HasPrefix(name, "cache-"):
		return "it is a cached result of map or filter; name the file itself to read it", nil
	}
	return "", nil
}

func readSaved(dir string) (saved, error) {
	type file struct {
		Name string `json:"filename"`
	}
	var state struct {
		Data    []file `json:"_data_files"`
		Indices []file `json:"_indices_data_files"`
	}
	path := filepath.Join(dir, savedSet)
	ok, err := readState(path, &state)
	if err == nil && len(state.Indices) > 0 {
		err = millrace.Errorf(
			millrace.ErrInvalid,
			"read %s: the dataset is a selection of rows by %s, which is not read; "+
				"save it again with flatten_indices()",
			path,
			state.Indices[0].Name,
		)
	}
	s := saved{dir: dir, known: ok && state.Data != nil}
	listed := make(map[string]bool, len(state.Data))
	for _, f := range state.Data {
		wrong := ""
		switch {
		case !exists(filepath.Join(dir, f.Name)):
			wrong = "which is not there; copy it there"
		case listed[f.Name]:
			wrong = "twice; copy it again"
		}
		if wrong != "" && err == nil {
			err = millrace.Errorf(millrace.ErrInvalid, "read %s: it lists %q, %s, or name the files themselves", path,
				f.Name, wrong)
		}
		s.files, listed[f.Name] = append(s.files, f.Name), true
	}
	return s, err
}

// readState reads a file of JSON. It returns false if there is none.
func readState(path string, into any) (bool, error) {
	b, ok, err := readSmall(path)
	if !ok || err != nil {
		return ok, err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return false, millrace.Errorf(millrace.ErrInvalid, "read %s: %w", path, err)
	}
	return true, nil
}

// readSmall reads a file that describes a directory. It returns false if there is none.
func readSmall(path string) ([]byte, bool, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err == nil && st.Size() > mostState {
		err = millrace.Errorf(
			millrace.ErrInvalid,
			"read %s: it has %d bytes, at most %d are read",
			path,
			st.Size(),
			mostState,
		)
	}
	if err != nil {
		return nil, false, err
	}
	b, err := os.ReadFile(path)
	return b, err == nil, err
}

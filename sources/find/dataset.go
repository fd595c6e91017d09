package find

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace"
)

// indexName is the name of the file that lists the shards of a dataset of MosaicML Streaming or LitData.
const indexName = "index.json"

// mostIndex bounds the bytes of such a file.
const mostIndex = 1 << 30

// listed is a shard that an index names. One of its files is there.
type listed struct {
	files []listedFile // the first that exists is the shard
}

// anyBytes is the size of a file of which an index has none.
const anyBytes = -1

// listedFile is a file that an index names.
type listedFile struct {
	Name  string `json:"basename"`
	Bytes int64  `json:"bytes"`
}

// streamingShards returns the shards of an index of MosaicML Streaming: packed if the index names a packed file.
func streamingShards(text []byte) (out []listed, err error) {
	var index struct {
		Shards []struct {
			Format string      `json:"format"`
			Raw    listedFile  `json:"raw_data"`
			Zip    *listedFile `json:"zip_data"`
		} `json:"shards"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, err
	}
	if index.Shards == nil {
		return nil, errors.New("it has no list `shards`")
	}
	for _, s := range index.Shards {
		if s.Format != "" && !slices.Contains([]string{"mds", "json", "csv", "tsv", "xsv"}, s.Format) {
			return nil, fmt.Errorf("shard %s is of format %s, and mds, json, csv, tsv and xsv are read", s.Raw.Name,
				s.Format)
		}
		l := listed{files: []listedFile{s.Raw}}
		if s.Zip != nil {
			l.files = []listedFile{*s.Zip, s.Raw}
		}
		out = append(out, l)
	}
	return out, nil
}

// litdataChunks returns the chunks of an index of LitData. The index has no size of a chunk that is packed as a whole.
func litdataChunks(text []byte) (out []listed, err error) {
	var index struct {
		Chunks []struct {
			Name  string `json:"filename"`
			Bytes int64  `json:"chunk_bytes"`
		} `json:"chunks"`
		Config struct {
			Compression string `json:"compression"`
		} `json:"config"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, err
	}
	if index.Chunks == nil {
		return nil, errors.New("it has no list `chunks`")
	}
	packed := "." + index.Config.Compression + ".bin"
	for _, c := range index.Chunks {
		file := listedFile{Name: c.Name, Bytes: c.Bytes}
		if index.Config.Compression != "" && strings.HasSuffix(c.Name, packed) {
			file.Bytes = anyBytes
		}
		out = append(out, listed{files: []listedFile{file}})
	}
	return out, nil
}

// isIndex reports whether a file of this name lists the shards of the source's format.
func (f *sifter) isIndex(file string) bool {
	row := formatNamed(f.format)
	return row != nil && row.shards != nil && filepath.Base(file) == indexName
}

// dataset returns the files that the index of a directory names, in its order. ok is false if the directory has no
// index, or the source's format has none. A file that is missing or has other bytes is an error.
func (f *finder) dataset(dir, root string) (found []match, ok bool, err error) {
	row := formatNamed(f.format)
	if row == nil || row.shards == nil {
		return nil, false, nil
	}
	path := filepath.Join(dir, indexName)
	text, err := readIndex(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	shards, err := row.shards(text)
	if err != nil {
		return nil, false, millrace.Errorf(
			millrace.ErrInvalid,
			"read %s: it is no index of %s: %w",
			path,
			f.format,
			err,
		)
	}
	for i, shard := range shards {
		file, err := shard.look(dir)
		if err != nil {
			return nil, false, fmt.Errorf("read %s: shard %d: %w", path, i, err)
		}
		found = append(found, match{path: file, root: root})
	}
	return found, true, nil
}

func readIndex(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > mostIndex {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read %s: it has more than %d bytes", path, mostIndex)
	}
	return io.ReadAll(io.LimitReader(file, mostIndex))
}

// look returns the path of a shard's file.
func (l listed) look(dir string) (string, error) {
	for _, file := range l.files {
		if !filepath.IsLocal(file.Name) {
			return "", millrace.Errorf(millrace.ErrInvalid, "%q is no path below the directory", file.Name)
		}
		path := filepath.Join(dir, file.Name)
		st, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		case st.Size() != file.Bytes && file.Bytes != anyBytes:
			return "", millrace.Errorf(millrace.ErrInvalid,
				"%s has %d bytes, and the index says %d; copy the file again", path, st.Size(), file.Bytes)
		}
		return path, nil
	}
	return "", &missing{filepath.Join(dir, l.files[0].Name) + " is not there; copy it there, or write the index again"}
}

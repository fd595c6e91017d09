package litdata

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/beside"
)

// index has the facts of an index.json that decide how items are read.
type index struct {
	Compression string          `json:"compression"`
	Level       string          `json:"compression_level"` // "" for whole chunks
	DataFormat  []string        `json:"data_format"`
	DataSpec    *string         `json:"data_spec"`
	Encryption  json.RawMessage `json:"encryption"`
	Loader      string          `json:"item_loader"`

	chunks   map[string][]chunk // by name
	leaves   []leaf
	isTokens bool // an item is an array of ids without a table of leaves
}

// Granularities of compression that have no mark in the chunk.
const levelSample = "sample"

// indexes has the index.json that was read last.
type indexes struct{ last beside.Cache[*index] }

// of returns the index beside a chunk.
func (x *indexes) of(files sources.FS, chunk sources.File) (*index, error) {
	out, err := x.last.Of(files, chunk, "index.json", readIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, millrace.Errorf(millrace.ErrDamaged, "open %s: the index.json of its set is not beside it: %w",
			chunk.Name(), err)
	}
	return out, err
}

// readIndex reads an index.json.
func readIndex(f sources.File) (*index, error) {
	if f.Size() > mostIndex {
		return nil, misfit(f, "%w", sources.Limited("write the set again with larger chunks",
			"it has %d bytes, more than %d", f.Size(), mostIndex))
	}
	text, err := io.ReadAll(sources.NewReader(f, 0, f.Size()))
	if err != nil {
		return nil, err
	}
	var head struct {
		Chunks []chunk `json:"chunks"`
		Config *index  `json:"config"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, misfit(f, "it is no JSON: %v", err)
	}
	x := head.Config
	if x == nil {
		return nil, misfit(f, "it has no config")
	}
	x.isTokens = x.Loader == "TokensLoader" || x.Loader == "" && len(head.Chunks) > 0 && head.Chunks[0].Dim != nil
	switch {
	case len(x.Encryption) > 0 && string(x.Encryption) != "null":
		return nil, refused(f, "its chunks are encrypted, which is not read; write the set again without encryption")
	case !x.isTokens && x.Loader != "" && x.Loader != "PyTreeLoader":
		return nil, refused(f, "its items are of %s, which is not read; a set of Parquet files is read as "+
			"`format: parquet`", x.Loader)
	}
	x.leaves, err = x.leavesOf()
	if err != nil {
		return nil, misfit(f, "%v", err)
	}
	x.chunks = make(map[string][]chunk, len(head.Chunks))
	for _, c := range head.Chunks {
		x.chunks[c.Name] = append(x.chunks[c.Name], c)
	}
	return x, nil
}

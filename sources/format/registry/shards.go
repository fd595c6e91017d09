package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// IndexName is the name of the file that lists the shards of a dataset of MosaicML Streaming or LitData.
const IndexName = "index.json"

// Listed is a shard that an index names. One of its files is there.
type Listed struct {
	Files []ListedFile // the first that exists is the shard
}

// AnyBytes is the size of a file of which an index has none.
const AnyBytes = -1

// ListedFile is a file that an index names.
type ListedFile struct {
	Name  string `json:"basename"`
	Bytes int64  `json:"bytes"`
}

// streamingShards returns the shards of an index of MosaicML Streaming: packed if the index names a packed file.
func streamingShards(text []byte) (out []Listed, err error) {
	var index struct {
		Shards []struct {
			Format string      `json:"format"`
			Raw    ListedFile  `json:"raw_data"`
			Zip    *ListedFile `json:"zip_data"`
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
		l := Listed{Files: []ListedFile{s.Raw}}
		if s.Zip != nil {
			l.Files = []ListedFile{*s.Zip, s.Raw}
		}
		out = append(out, l)
	}
	return out, nil
}

// litdataChunks returns the chunks of an index of LitData. The index has no size of a chunk that is packed as a whole.
func litdataChunks(text []byte) (out []Listed, err error) {
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
		file := ListedFile{Name: c.Name, Bytes: c.Bytes}
		if index.Config.Compression != "" && strings.HasSuffix(c.Name, packed) {
			file.Bytes = AnyBytes
		}
		out = append(out, Listed{Files: []ListedFile{file}})
	}
	return out, nil
}

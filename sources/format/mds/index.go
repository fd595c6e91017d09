package mds

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/beside"
	"millrace/sources/format/parts/extents"
)

// mostIndex bounds the bytes of an index.json.
const mostIndex = 1 << 30

// listed has what an index.json says of one shard. It says nothing of a nil value.
type listed struct {
	Samples   *int64   `json:"samples"`
	Raw       part     `json:"raw_data"`
	Zip       *part    `json:"zip_data"`
	Names     []string `json:"column_names"`
	Encodings []string `json:"column_encodings"`
	Sizes     []*int64 `json:"column_sizes"`
}

// part is a file that an index.json names.
type part struct {
	Name  string `json:"basename"`
	Bytes *int64 `json:"bytes"`
}

// indexes has the index.json that was read last: its shards by the names of their files.
type indexes struct {
	last beside.Cache[map[string]*listed]
}

// of returns what the index.json beside a shard says of it, nil if nothing does. A shard describes itself, so a glob of
// shards needs no index.
func (x *indexes) of(files sources.FS, f sources.File) (*listed, error) {
	if files == nil {
		return nil, nil
	}
	all, err := x.last.Of(files, f, "index.json", readIndex)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	return all[filepath.Base(f.Name())], err
}

// readIndex reads an index.json. Another program's file of this name says nothing.
func readIndex(f sources.File) (map[string]*listed, error) {
	if f.Size() > mostIndex {
		return nil, nil
	}
	text, err := io.ReadAll(sources.NewReader(f, 0, f.Size()))
	if err != nil {
		return nil, err
	}
	var index struct {
		Shards []*listed `json:"shards"`
	}
	if json.Unmarshal(text, &index) != nil {
		return nil, nil
	}
	all := make(map[string]*listed, len(index.Shards))
	for _, s := range index.Shards {
		if s == nil {
			continue
		}
		all[s.Raw.Name] = s
		if s.Zip != nil {
			all[s.Zip.Name] = s
		}
	}
	return all, nil
}

// compare returns an error if the index says something else of a shard than the shard itself: its samples, its unpacked
// bytes, and its columns.
func (l *listed) compare(f sources.File, samples uint64, bytes int64, c *config) error {
	switch {
	case l == nil:
		return nil
	case l.Samples != nil && *l.Samples != int64(samples):
		return disagrees(f, "%d samples, and its index.json says %d", samples, *l.Samples)
	case l.Raw.Bytes != nil && *l.Raw.Bytes != bytes:
		return disagrees(f, "%d bytes, and its index.json says %d", bytes, *l.Raw.Bytes)
	case l.Names != nil && !slices.Equal(l.Names, c.Names):
		return disagrees(f, "the columns %q, and its index.json says %q", c.Names, l.Names)
	case l.Encodings != nil && !slices.Equal(l.Encodings, c.Encodings):
		return disagrees(f, "columns of %q, and its index.json says %q", c.Encodings, l.Encodings)
	case l.Sizes != nil && !slices.EqualFunc(l.Sizes, c.Sizes, equalSize):
		return disagrees(f, "columns of other sizes than %s", "its index.json says")
	}
	return nil
}

func equalSize(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func disagrees(f sources.File, format string, args ...any) error {
	err := extents.Misfit(f, "it has "+format+"; copy the shard and the index again", args...)
	return millrace.Errorf(millrace.ErrDamaged, "%w", err)
}

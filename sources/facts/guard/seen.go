package guard

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/zeebo/xxh3"

	"millrace"
	"millrace/sources/facts/identity"
)

// Blobs keeps the entries of Seen between runs.
type Blobs interface {
	Load(key millrace.Digest, kind string) ([]byte, bool)
	Save(key millrace.Digest, kind string, blob []byte) error
}

// Seen remembers files by their paths: the identities under which they were found, and the facts in
// their heads. It is safe for concurrent use.
type Seen struct {
	blobs Blobs
	key   func(text string) millrace.Digest
	log   *slog.Logger
	host  string

	mu     sync.Mutex
	tables map[string]map[string]identity.Entry // of earlier releases, by directory and name
}

// The kinds of blobs: an entry of a path, and a table of a directory, as earlier releases kept it.
const (
	kindFile  = "file"
	kindFiles = "files"
)

// NewSeen returns the memory of a source. digest names the blobs of earlier releases.
func NewSeen(blobs Blobs, digest func(text string) millrace.Digest, log *slog.Logger) *Seen {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it only distinguishes hosts that share an index directory
	}
	return &Seen{blobs: blobs, key: digest, log: log, host: host, tables: map[string]map[string]identity.Entry{}}
}

// Recall returns the digest of the shard at a path and the facts in its head under some settings, if exactly these
// files were seen as this shard on this host.
func (s *Seen) Recall(path string, files []identity.File, settings uint64) (millrace.Digest, identity.Facts, bool) {
	blob, ok := s.blobs.Load(keyOf(path), kindFile)
	if !ok {
		return millrace.Digest{}, identity.Facts{}, false
	}
	return identity.Match(blob, identity.Seen{Host: s.host, Files: files}, settings)
}

// keyOf returns the name of the blob of a path.
func keyOf(path string) millrace.Digest { return xxh3.HashString128(path).Bytes() }

func (s *Seen) entry(path string) (identity.Entry, bool) {
	if blob, ok := s.blobs.Load(keyOf(path), kindFile); ok {
		e, err := identity.Decode(blob)
		if err == nil {
			return *e, true
		}
		s.log.Warn("the kept identity of a file is not used", "file", path, "err", err)
	}
	dir, name := filepath.Split(path)
	blob, ok := s.blobs.Load(s.key("millrace files 1"+dir), kindFiles)
	if !ok {
		return identity.Entry{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	table, ok := s.tables[dir]
	if !ok {
		var err error
		if table, err = identity.DecodeTable(blob); err != nil {
			s.log.Warn("the kept identities of files are not used", "directory", dir, "err", err)
		}
		s.tables[dir] = table
	}
	e, ok := table[name]
	return e, ok
}

// find returns the entry of a shard, false if there is none with its digest.
func (s *Seen) find(shard millrace.Shard) (identity.Entry, bool) {
	e, ok := s.entry(shard.Path)
	return e, ok && e.Digest == shard.Digest
}

// Sample returns the hash of some blocks in the middle of a shard, 0 if none was taken.
func (s *Seen) Sample(shard millrace.Shard) uint64 {
	e, ok := s.find(shard)
	if !ok {
		return 0
	}
	return e.Sample
}

// add remembers an identity of a shard, and facts if they are not nil. If the entry is lost, a later run compares
// contents again.
func (s *Seen) add(shard millrace.Shard, sample uint64, files []identity.File, facts *identity.Facts) {
	e, ok := s.find(shard)
	if !ok {
		e = identity.Entry{Digest: shard.Digest}
	}
	news := e.Add(sample, identity.Seen{Host: s.host, Files: files})
	if facts != nil && e.AddFacts(*facts) {
		news = true
	}
	if !news {
		return
	}
	if err := s.blobs.Save(keyOf(shard.Path), kindFile, e.Encode()); err != nil {
		s.log.Warn("the identity of a file is not kept", "file", shard.Path, "err", err)
	}
}

package guard

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"millrace"
	"millrace/sources/identity"
)

// Blobs keeps the tables of Seen between runs. Forget makes the next Load look for the blob of another process.
type Blobs interface {
	Load(key millrace.Digest, kind string) ([]byte, bool)
	Save(key millrace.Digest, kind string, blob []byte) error
	Forget(key millrace.Digest, kind string)
}

// Seen remembers the identities under which a source's files were found, in one table for each directory. It is safe
// for concurrent use.
type Seen struct {
	blobs Blobs
	key   func(text string) millrace.Digest
	log   *slog.Logger
	host  string

	mu     sync.Mutex
	tables map[string]*seenTable
}

type seenTable struct {
	identity.Table
	news []seenNews // since the table was read
}

type seenNews struct {
	name   string
	digest millrace.Digest
	sample uint64
	seen   identity.Seen
}

const kindFiles = "files"

// NewSeen returns the table of a source. digest names the blob of a directory.
func NewSeen(blobs Blobs, digest func(text string) millrace.Digest, log *slog.Logger) *Seen {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it only distinguishes hosts that share an index directory
	}
	return &Seen{blobs: blobs, key: digest, log: log, host: host, tables: make(map[string]*seenTable)}
}

func (s *Seen) tableKey(dir string) millrace.Digest { return s.key("millrace files 1" + dir) }

// of returns the table of a directory; the mutex is held.
func (s *Seen) of(path string) (*seenTable, string) {
	dir, name := filepath.Split(path)
	if t := s.tables[dir]; t != nil {
		return t, name
	}
	t := &seenTable{Table: s.load(dir)}
	s.tables[dir] = t
	return t, name
}

func (s *Seen) load(dir string) identity.Table {
	blob, ok := s.blobs.Load(s.tableKey(dir), kindFiles)
	if !ok {
		return identity.Table{}
	}
	table, err := identity.Decode(blob)
	if err != nil {
		s.log.Warn("the kept identities of files are not used", "directory", dir, "err", err)
		return identity.Table{}
	}
	return *table
}

func (s *Seen) find(shard millrace.Shard) (identity.Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, name := s.of(shard.Path)
	return t.Find(name, shard.Digest)
}

func (s *Seen) add(shard millrace.Shard, sample uint64, files []identity.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, name := s.of(shard.Path)
	news := seenNews{name, shard.Digest, sample, identity.Seen{Host: s.host, Files: files}}
	if t.Add(news.name, news.digest, news.sample, news.seen) {
		t.news = append(t.news, news)
	}
}

// save adds the news to the tables that other processes may have kept meanwhile. If news are lost, a later run compares
// contents again.
func (s *Seen) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir, t := range s.tables {
		if len(t.news) == 0 {
			continue
		}
		s.blobs.Forget(s.tableKey(dir), kindFiles)
		t.Table = s.load(dir)
		for _, n := range t.news {
			t.Add(n.name, n.digest, n.sample, n.seen)
		}
		t.news = nil
		if err := s.blobs.Save(s.tableKey(dir), kindFiles, t.Encode()); err != nil {
			s.log.Warn("the identities of files are not kept", "directory", dir, "err", err)
		}
	}
}

package sources

import (
	"os"
	"path/filepath"
	"sync"

	"millrace"
	"millrace/sources/identity"
)

// seenFiles is what is remembered of the identities of a source's files, a table for each directory. It is safe for
// concurrent use.
type seenFiles struct {
	src  *Source
	host string

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

func newSeenFiles(s *Source) *seenFiles {
	host, err := os.Hostname()
	if err != nil {
		host = "" // only hosts that share an index directory are told apart by it
	}
	return &seenFiles{src: s, host: host, tables: make(map[string]*seenTable)}
}

func tableKey(dir string) millrace.Digest { return digest128([]byte("millrace files 1" + dir)) }

// of returns the table of a directory; the mutex is held.
func (f *seenFiles) of(path string) (*seenTable, string) {
	dir, name := filepath.Split(path)
	if t := f.tables[dir]; t != nil {
		return t, name
	}
	t := &seenTable{Table: f.load(dir)}
	f.tables[dir] = t
	return t, name
}

func (f *seenFiles) load(dir string) identity.Table {
	blob, ok := f.src.memory.blobs.Load(tableKey(dir), kindFiles)
	if !ok {
		return identity.Table{}
	}
	table, err := identity.Decode(blob)
	if err != nil {
		f.src.log.Warn("what was remembered of files is not used", "directory", dir, "err", err)
		return identity.Table{}
	}
	return *table
}

func (f *seenFiles) find(sh millrace.Shard) (identity.Entry, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, name := f.of(sh.Path)
	return t.Find(name, sh.Digest)
}

func (f *seenFiles) add(sh millrace.Shard, sample uint64, files []identity.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, name := f.of(sh.Path)
	news := seenNews{name, sh.Digest, sample, identity.Seen{Host: f.host, Files: files}}
	if t.Add(news.name, news.digest, news.sample, news.seen) {
		t.news = append(t.news, news)
	}
}

// save adds what is new to what other processes may have kept meanwhile. What is lost costs a comparison of contents.
func (f *seenFiles) save() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for dir, t := range f.tables {
		if len(t.news) == 0 {
			continue
		}
		f.src.memory.blobs.Forget(tableKey(dir), kindFiles)
		t.Table = f.load(dir)
		for _, n := range t.news {
			t.Add(n.name, n.digest, n.sample, n.seen)
		}
		t.news = nil
		if err := f.src.memory.blobs.Save(tableKey(dir), kindFiles, t.Encode()); err != nil {
			f.src.log.Warn("what was seen of files is not remembered", "directory", dir, "err", err)
		}
	}
}

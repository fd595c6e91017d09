package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"millrace"
	"millrace/sources"
)

// Sizes of writes.
const (
	flushBytes   = 1 << 20
	leastReserve = 64 << 10
	mostReserve  = 32 << 20
)

// errBusy is the error of an entry that another process writes, or has just written.
var errBusy = errors.New("another process writes it")

// writer writes one entry. Its file gets the entry's name when it is complete and synced.
type writer struct {
	store *Store
	key   millrace.Digest
	file  File
	temp  string
	salt  uint64

	reserved int64 // size of the file, and the bytes counted for it
	step     int64 // by which it grows
	written  int64
	buf      []byte
	slots    []byte // of the unfinished group
	tables   []uint64
	records  uint64
}

// create begins an entry of about size bytes.
func (s *Store) create(key millrace.Digest, size int64) (*writer, error) {
	temp := filepath.Join(s.room.dir, fillPrefix+key.String())
	f, err := s.room.fs.Create(temp)
	if err != nil {
		return nil, fmt.Errorf("write an entry of the cache: %w", err)
	}
	if !f.Lock(true) || !f.IsAt(temp) {
		return nil, errors.Join(errBusy, f.Close())
	}
	w := &writer{store: s, key: key, file: f, temp: temp, salt: saltOf(key),
		step: min(max(size, leastReserve), mostReserve)}
	if w.reserved, err = f.Size(); err == nil {
		err = w.resize(0) // a dead writer may have left bytes
	}
	if err == nil && s.isThere(key) {
		err = errBusy // a second file of this name would be counted, and take the first one's place
	}
	if err != nil {
		return nil, errors.Join(err, w.abort())
	}
	w.buf = appendHead(make([]byte, 0, flushBytes), key)
	return w, nil
}

// isThere reports whether the store has a file for an entry.
func (s *Store) isThere(key millrace.Digest) bool {
	f, err := s.room.fs.Open(s.path(key))
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// resize makes the file smaller.
func (w *writer) resize(size int64) error {
	if size == w.reserved {
		return nil
	}
	return w.store.room.change(0, func() (int64, error) {
		if err := w.file.Truncate(size); err != nil {
			return 0, err
		}
		grown := size - w.reserved
		w.reserved = size
		return grown, nil
	})
}

// reserve takes room for bytes that were not written yet.
func (w *writer) reserve(more int64) error {
	size := w.written + more
	if size <= w.reserved {
		return nil
	}
	size = max(size, w.reserved+w.step)
	return w.store.room.change(size-w.reserved, func() (int64, error) {
		if err := w.file.Reserve(size); err != nil {
			return 0, errors.Join(err, w.file.Truncate(w.reserved))
		}
		grown := size - w.reserved
		w.reserved = size
		return grown, nil
	})
}

// add writes one record. tokens is its document.
func (w *writer) add(r *sources.Record, tokens []uint32) error {
	from := len(w.buf)
	var err error
	if w.buf, err = appendRecord(w.buf, r, tokens); err != nil {
		return err
	}
	end := uint64(w.written) + uint64(len(w.buf))
	w.slots = binary.LittleEndian.AppendUint64(w.slots, end)
	w.slots = binary.LittleEndian.AppendUint64(w.slots, checksum(w.salt, w.records, w.buf[from:]))
	w.records++
	if w.records%groupSize == 0 {
		w.endGroup()
	}
	if len(w.buf) >= flushBytes {
		return w.flush()
	}
	return nil
}

func (w *writer) endGroup() {
	w.tables = append(w.tables, uint64(w.written)+uint64(len(w.buf)))
	w.buf = append(w.buf, w.slots...)
	w.slots = w.slots[:0]
}

func (w *writer) flush() error {
	if err := w.reserve(int64(len(w.buf))); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(w.buf, w.written); err != nil {
		return fmt.Errorf("write an entry of the cache: %w", err)
	}
	w.written += int64(len(w.buf))
	if w.buf = w.buf[:0]; cap(w.buf) > 4*flushBytes {
		w.buf = make([]byte, 0, flushBytes)
	}
	return nil
}

// finish completes the entry and gives it its name.
func (w *writer) finish() error {
	if len(w.slots) > 0 {
		w.endGroup()
	}
	w.buf = appendTail(w.buf, w.key, w.tables, uint64(w.written)+uint64(len(w.buf)), w.records)
	err := w.flush()
	if err == nil {
		err = w.resize(w.written)
	}
	if err == nil {
		err = w.file.Sync()
	}
	if err == nil {
		err = w.store.room.fs.Rename(w.temp, w.store.path(w.key))
	}
	if err != nil {
		return errors.Join(err, w.abort())
	}
	return w.file.Close()
}

// abort removes the unfinished entry.
func (w *writer) abort() error {
	return errors.Join(w.resize(0), w.store.room.fs.Remove(w.temp), w.file.Close())
}

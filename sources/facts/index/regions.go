package index

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// lengthsFile is the open file of lengths. This process makes regions in a stretch that it has reserved alone.
type lengthsFile struct {
	mapped
	number    uint64 // of the file
	next, end int64  // the rest of the reserved stretch
	chunk     int64  // size of the next stretch
}

// The first stretch that a process reserves for regions is short, and each is twice as long as the one before.
const (
	leastChunk = 64 << 10
	mostChunk  = 16 << 20
)

// close unmaps and closes the file; it may be nil.
func (f *lengthsFile) close() error {
	if f == nil {
		return nil
	}
	return f.mapped.close()
}

// ErrReadOnly is the error of lengths that a read-only directory does not have.
var ErrReadOnly = errors.New("the index directory is read-only")

// placed returns the bytes of a region that was made before, nil if there is none.
func (s *Store) placed(k key, size int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place, ok := s.find(k)
	if !ok || len(place) != 16 {
		return nil, nil
	}
	if s.lengths == nil {
		f, err := s.openLengths(false)
		if isMissing(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		s.lengths = f
	}
	return s.lengths.at(place, size)
}

// at returns the bytes of a region, nil if it is not in this file.
func (f *lengthsFile) at(place []byte, size int64) ([]byte, error) {
	off := int64(binary.LittleEndian.Uint64(place[8:]))
	if binary.LittleEndian.Uint64(place) != f.number || off < packHead || off%8 != 0 {
		return nil, nil
	}
	if off+size > f.size {
		if _, err := f.look(); err != nil || off+size > f.size {
			return nil, err
		}
	}
	return f.view[off:][:size:size], nil
}

// place makes a region with these entries, zero if they are nil, or returns the region that another
// process has made meanwhile.
func (s *Store) place(k key, size int64, entries []byte) ([]byte, error) {
	if s.IsReadOnly() {
		return nil, ErrReadOnly
	}
	s.appending.Lock()
	defer s.appending.Unlock()
	unlock, err := s.lockLog() // it reads the records of other processes
	if err != nil {
		return nil, err
	}
	defer unlock()
	if b, err := s.placed(k, size); b != nil || err != nil {
		return b, err
	}
	place, err := s.reserve(size)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	b, err := s.lengths.at(place, size)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	copy(b, entries)
	record := appendRecord(nil, k, place)
	at, err := s.write(record, false) // lost in a power failure, it costs the lengths
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.add(at, int64(len(record)))
	return b, nil
}

// reserve takes room for a region and returns its place; the log's lock is held.
func (s *Store) reserve(size int64) (place []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lengths == nil {
		if s.lengths, err = s.openLengths(true); err != nil {
			return nil, err
		}
	}
	f := s.lengths
	if f.end-f.next < align(size) {
		if _, err := f.look(); err != nil {
			return nil, err
		}
		f.chunk = min(max(2*f.chunk, leastChunk), mostChunk)
		from := align(f.size)
		to := from + max(align(size), f.chunk)
		if err := f.file.Reserve(from, to); err != nil {
			return nil, err
		}
		if _, err := f.look(); err != nil {
			return nil, err
		}
		f.next, f.end = from, to
	}
	place = binary.LittleEndian.AppendUint64(nil, f.number)
	place = binary.LittleEndian.AppendUint64(place, uint64(f.next))
	f.next += align(size)
	return place, nil
}

// openLengths opens the file of lengths; mu is held. With make, the log's lock is held, too: openLengths makes a
// missing file, and replaces one that is none.
func (s *Store) openLengths(make bool) (*lengthsFile, error) {
	path := filepath.Join(s.dir, lengthsName)
	for {
		file, err := s.fs.Open(path, make)
		if err != nil {
			return nil, err
		}
		f := &lengthsFile{mapped: mapped{file: file, prot: unix.PROT_READ | unix.PROT_WRITE}}
		if _, err = f.look(); err == nil && f.size == 0 && make {
			if err = f.begin(); err == nil {
				_, err = f.look()
			}
		}
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		if f.readHead() {
			return f, nil
		}
		if err := f.close(); err != nil {
			return nil, err
		}
		if !make {
			return nil, fs.ErrNotExist // the next region replaces the file
		}
		s.note.Warn("the file of lengths is damaged and begins anew", "file", path)
		if err := s.fs.Remove(path); err != nil {
			return nil, err
		}
	}
}

// begin writes the head of a new file.
func (f *lengthsFile) begin() error {
	head := append(make([]byte, 0, packHead), packMagic...)
	var number [8]byte
	if _, err := rand.Read(number[:]); err != nil {
		return err
	}
	head = append(head, number[:]...)
	head = binary.LittleEndian.AppendUint64(head, xxh3.Hash(head))
	if err := f.file.Reserve(0, packHead); err != nil {
		return err
	}
	_, err := f.file.WriteAt(head, 0)
	return err
}

func (f *lengthsFile) readHead() bool {
	if f.size < packHead || string(f.view[:8]) != packMagic {
		return false
	}
	f.number = binary.LittleEndian.Uint64(f.view[8:])
	return binary.LittleEndian.Uint64(f.view[16:]) == xxh3.Hash(f.view[:16])
}

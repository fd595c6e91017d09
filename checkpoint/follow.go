package checkpoint

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
)

// Feed receives every batch of a store after its fsync, in order, as bytes for Absorb. Its method must not block, and
// must not call the store. The bytes are shared and immutable.
type Feed interface {
	// Batch gets one batch. Its number is one higher than that of the batch before.
	Batch(number uint64, batch []byte)
}

// feeds are the followers of a store.
type feeds struct {
	all    []Feed
	number uint64 // of the newest batch since the store was opened
}

// copyOf returns the bytes of a batch, nil if there is no follower.
func (f *feeds) copyOf(batch *pebble.Batch) []byte {
	if len(f.all) == 0 {
		return nil
	}
	return bytes.Clone(batch.Repr())
}

func (f *feeds) send(batch []byte) {
	f.number++
	for _, feed := range f.all {
		feed.Batch(f.number, batch)
	}
}

// Follow returns the content of the store, and hands all batches after it to the feed until Unfollow. The caller closes
// the image, which keeps the store open.
func (s *Store) Follow(f Feed) (*Image, error) {
	leave, err := s.gate.enter()
	if err != nil {
		return nil, err
	}
	s.gate.writing.Lock()
	defer s.gate.writing.Unlock()
	i := &Image{db: s.db, number: s.feeds.number, leave: leave}
	i.at = s.db.pebble.NewSnapshot()
	err = catch("read", s.dir, func() (err error) {
		i.cursor.db = s.db
		i.cursor.it, err = i.at.NewIter(nil)
		return err
	})
	if err != nil {
		leave()
		return nil, err
	}
	s.feeds.all = append(s.feeds.all, f)
	return i, nil
}

// Unfollow ends Follow. The feed gets nothing after it returned.
func (s *Store) Unfollow(f Feed) {
	s.gate.writing.Lock()
	defer s.gate.writing.Unlock()
	s.feeds.all = slices.DeleteFunc(s.feeds.all, func(g Feed) bool { return g == f })
}

// Number returns the number of the newest batch.
func (s *Store) Number() uint64 {
	s.gate.writing.Lock()
	defer s.gate.writing.Unlock()
	return s.feeds.number
}

// Image is the content of a store at one moment.
type Image struct {
	db     *database
	number uint64
	at     *pebble.Snapshot
	cursor cursor
	leave  func()
}

// Number returns the number of the last batch that the image contains.
func (i *Image) Number() uint64 { return i.number }

// Next returns the next part of the image as a batch for Absorb, nil at the end. A part has keys and values of about
// `size` bytes, and one key at least.
func (i *Image) Next(size int) ([]byte, error) {
	batch := i.db.pebble.NewBatch()
	for (batch.Empty() || batch.Len() < size) && i.cursor.next() {
		value := i.cursor.value()
		if i.cursor.err != nil {
			break
		}
		if err := batch.Set(i.cursor.key(), value, nil); err != nil {
			i.cursor.err = classify("read", i.db.dir, err)
		}
	}
	part := bytes.Clone(batch.Repr())
	empty := batch.Empty()
	if err := batch.Close(); err != nil || i.cursor.err != nil || empty {
		return nil, cmp.Or(i.cursor.err, err)
	}
	return part, nil
}

// Close releases the image.
func (i *Image) Close() error {
	defer i.leave()
	return cmp.Or(i.cursor.close(), catch("read", i.db.dir, i.at.Close))
}

// Absorb makes a batch of another store durable, with its records, snapshots and plans. It takes the batch's bytes. The
// error is ErrCorrupt if a value is damaged or does not continue the journal; then nothing was written. A store absorbs
// the batches of one store only, all and in order. It has no other writer.
func (s *Store) Absorb(batch []byte) error {
	leave, err := s.gate.enterWrite()
	if err != nil {
		return err
	}
	defer leave()
	next, err := s.journal.after(batch)
	if err != nil {
		return fmt.Errorf("copy a batch to %s: %w", s.dir, err)
	}
	if err := s.hasRoom(); err != nil {
		return err
	}
	b := s.db.pebble.NewBatch()
	if err := b.SetRepr(batch); err != nil {
		return classify("copy a batch to", s.dir, err)
	}
	s.fail.Hit("checkpoint/absorb/before")
	if err := s.write("copy a batch to", b); err != nil {
		return err
	}
	s.fail.Hit("checkpoint/absorb/after")
	grown := next.last > s.journal.last
	next.witnessed = s.journal.witnessed
	if s.journal.bounds = next; grown {
		s.journal.witness(next.last)
	}
	return nil
}

// after returns the bounds of the journal after a batch of another store. It checks every value in the batch.
func (b bounds) after(batch []byte) (bounds, error) {
	if _, ok := batchrepr.ReadHeader(batch); !ok {
		return b, fmt.Errorf("%w: it has no header", ErrCorrupt)
	}
	r := batchrepr.Read(batch)
	for {
		kind, key, value, ok, err := r.Next()
		switch {
		case err != nil:
			return b, fmt.Errorf("%w: %v", ErrCorrupt, err)
		case !ok:
			return b, nil
		case len(key) == 0:
			err = errShort
		case kind == pebble.InternalKeyKindSet:
			err = b.set(key, value)
		case kind == pebble.InternalKeyKindRangeDelete:
			b.drop(key, value)
		default:
			err = fmt.Errorf("no store writes keys of kind %v", kind)
		}
		if err != nil {
			return b, fmt.Errorf("%w: key %x: %v", ErrCorrupt, key, err)
		}
	}
}

// set moves the bounds by one key that is set, and checks its value.
func (b *bounds) set(key, value []byte) error {
	switch key[0] {
	case tagFormat:
		version, _, err := decodeFormat(key, value)
		if err == nil && version != formatVersion {
			err = fmt.Errorf("the store has format %d, this program format %d: run one release on all hosts", version,
				formatVersion)
		}
		return err
	case tagRecord:
		r, err := decodeRecord(key, value)
		if err != nil {
			return err
		}
		return b.append(r.Index)
	case tagSnapshot:
		snap, err := decodeSnapshot(key, value)
		if err == nil {
			if b.first > b.last && b.last < snap.Index { // an image of a journal without records
				b.first, b.last = snap.Index+1, snap.Index
			}
			b.hasSnapshot, b.snapshot = true, max(b.snapshot, snap.Index)
		}
		return err
	case tagEntry:
		_, err := decodeEntry(key, value)
		return err
	case tagPlan, tagIndexEntry:
		_, err := decodeBare(key, value)
		return err
	}
	return fmt.Errorf("no store has such a key")
}

// append moves the end of the journal to a record.
func (b *bounds) append(index uint64) error {
	isImage := b.last == 0 && !b.hasSnapshot // the first record of an image may have any index
	if index != b.last+1 && !isImage {
		return fmt.Errorf("record %d follows record %d", index, b.last)
	}
	if isImage {
		b.first = index
	}
	b.last = index
	return nil
}

// drop moves the begin of the journal by a range of keys that is deleted.
func (b *bounds) drop(from, to []byte) {
	if from[0] != tagRecord {
		return
	}
	if index, ok := parseIndexKey(to); ok {
		b.first = max(b.first, index)
	}
}

package index

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

// log is an open log and the places of its newest records.
type log struct {
	mapped
	table table
	flags uint64
	end   int64 // records before are in the table
	dead  int64 // bytes of replaced and damaged records
	torn  int64 // place of the head of a record whose end was lost; 0: none
}

// errNoLog is the error of a file that does not begin as a log does.
var errNoLog = errors.New("it has no head of a log")

// openLog opens a log without reading its records. A log without a head, empty or longer, is being made.
func openLog(files FS, path string, make bool) (*log, error) {
	f, err := files.Open(path, make)
	if err != nil {
		return nil, err
	}
	l := &log{mapped: mapped{file: f, prot: unix.PROT_READ}}
	_, err = l.look()
	if err == nil && l.size >= logHead {
		if flags, ok := readLogHead(l.bytes()); ok {
			l.flags, l.end = flags, logHead
		} else {
			err = errNoLog
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// grown looks whether the file has more bytes than were read.
func (l *log) grown() (bool, error) {
	_, err := l.look()
	return l.size > l.end, err
}

// scan adds the records from end on to the table. With skip, no process writes now: bytes that are no record stay
// unused for ever, and scan continues with the record behind them. It returns the number of such bytes. Without skip,
// it ends at the first record that is not whole.
func (l *log) scan(skip bool) (lost int64) {
	if l.end < logHead { // the head was not there before
		flags, ok := readLogHead(l.bytes())
		if !ok {
			return 0
		}
		l.flags, l.end = flags, logHead
	}
	l.table.grow(int((l.size-l.end)/(4*recordHead)), l.hashAt)
	for l.end+recordHead <= l.size {
		if r, ok := readRecord(l.view[l.end:l.size]); ok {
			l.put(l.end, r)
			l.end += r.span()
			continue
		}
		if !skip {
			return 0
		}
		if _, ok := readHead(l.view[l.end:l.size]); ok {
			l.torn = l.end
		}
		next := l.nextRecord(l.end + 8)
		lost += next - l.end
		l.end = next
	}
	l.dead += lost
	return lost
}

// nextRecord returns the place of the first whole record from a place on, or the end of the file.
func (l *log) nextRecord(at int64) int64 {
	for at < l.size {
		i := bytes.Index(l.view[at:l.size], []byte(recordMagic))
		if i < 0 {
			break
		}
		at += int64(i)
		if _, ok := readRecord(l.view[at:l.size]); ok && at%8 == 0 {
			return at
		}
		at++
	}
	return align(l.size)
}

// add puts the records of a stretch that was just written.
func (l *log) add(at, bytes int64) {
	for end := at + bytes; at < end; {
		r, ok := readRecord(l.view[at:end])
		if !ok {
			return
		}
		l.put(at, r)
		at += r.span()
	}
	l.end = max(l.end, at)
}

// clearTorn takes the magic from a record whose end was lost, so that the records behind it are not taken for its end.
// The log's lock is held, and a sync follows.
func (l *log) clearTorn() error {
	if l.torn == 0 {
		return nil
	}
	if _, err := l.file.WriteAt(make([]byte, len(recordMagic)), l.torn); err != nil {
		return err
	}
	l.torn = 0
	return nil
}

// put enters a record. A record whose payload is damaged does not replace an earlier one.
func (l *log) put(at int64, r record) {
	l.table.grow(1, l.hashAt)
	hash := r.hash()
	slot := l.table.find(hash, func(at int64) bool { return l.keyAt(at) == r.key })
	switch was := offsetOf(*slot); {
	case *slot == 0:
		l.table.used++
	case was == at:
		return
	case !isWhole(l.view[at:], r):
		l.dead += r.span()
		return
	default:
		if old, ok := readRecord(l.view[was:l.size]); ok {
			l.dead += old.span()
		}
	}
	*slot = slotOf(at, hash)
}

// keyAt returns the key of the record at a place, zero if it was damaged since it was read.
func (l *log) keyAt(at int64) key {
	r, ok := readRecord(l.view[at:l.size])
	if !ok {
		return key{}
	}
	return r.key
}

func (l *log) hashAt(at int64) uint64 { return l.keyAt(at).hash() }

// find returns the payload of a key. The first time it compares the payload with its checksum.
func (l *log) find(k key) ([]byte, bool) {
	if len(l.table.slots) == 0 {
		return nil, false
	}
	slot := l.table.find(k.hash(), func(at int64) bool { return l.keyAt(at) == k })
	if *slot == 0 {
		return nil, false
	}
	b := l.view[offsetOf(*slot):l.size]
	r, ok := readRecord(b)
	if !ok || *slot&slotChecked == 0 && !isWhole(b, r) {
		return nil, false
	}
	*slot |= slotChecked
	return payloadOf(b, r), true
}

package disk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The file TAIL has 12 bytes: the index of the last acknowledged record (u64) and a CRC32C of these eight bytes. It is
// written after the commit's fsync and synced only at a clean stop, so its index may be older than the last commit.
// Pebble takes damage near the end of its log for a torn write that was never acknowledged, and drops it. TAIL shows
// that more records were acknowledged.
const (
	tailName  = "TAIL"
	tailIndex = 8 // bytes of the index
	tailSize  = tailIndex + 4
)

// Tail is the file TAIL, which witnesses the journal's end. A store that is opened for reading may lack the file.
type Tail struct {
	file     vfs.File // nil if it is missing
	readOnly bool
	logger   *slog.Logger
}

// OpenTail opens the file of a store's folder. It creates a missing file unless readOnly is set.
func (d *Disk) OpenTail(dir string, readOnly bool, logger *slog.Logger) (t Tail, err error) {
	t, path := Tail{readOnly: readOnly, logger: logger}, d.fs.PathJoin(dir, tailName)
	if !readOnly {
		t.file, err = d.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		return t, err
	}
	if t.file, err = d.fs.Open(path); errors.Is(err, os.ErrNotExist) {
		return Tail{readOnly: true, logger: logger}, nil
	}
	return t, err
}

// Index returns the index in the file, 0 if the file has no valid one.
func (t Tail) Index() (index uint64, err error) {
	if t.file == nil {
		return 0, nil
	}
	var b [tailSize]byte
	n, err := t.file.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if n != tailSize || checksum(b[:tailIndex]) != binary.LittleEndian.Uint32(b[tailIndex:]) {
		return 0, nil
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// Witness notes the index of an acknowledged record. A failure is logged: the commit is durable without the note.
func (t Tail) Witness(index uint64) {
	b := binary.LittleEndian.AppendUint64(nil, index)
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	if _, err := t.file.WriteAt(b, 0); err != nil {
		t.logger.Warn("checkpoint: cannot write the journal's end to TAIL", "err", err)
	}
}

// Close makes the file durable.
func (t Tail) Close() error {
	switch {
	case t.file == nil:
		return nil
	case t.readOnly:
		return t.file.Close()
	}
	return errors.Join(t.file.Sync(), t.file.Close())
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

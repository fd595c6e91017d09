package checkpoint

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
	tailName = "TAIL"
	tailSize = 8 + crcSize
)

// tail is the file TAIL. A store that is opened for reading may lack the file.
type tail struct {
	file     vfs.File // nil if it is missing
	readOnly bool
	logger   *slog.Logger
}

// openTail opens the file. It creates a missing file unless readOnly is set.
func openTail(fs vfs.FS, path string, readOnly bool, logger *slog.Logger) (t tail, err error) {
	t = tail{readOnly: readOnly, logger: logger}
	if !readOnly {
		t.file, err = fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		return t, err
	}
	if t.file, err = fs.Open(path); errors.Is(err, os.ErrNotExist) {
		return tail{readOnly: true, logger: logger}, nil
	}
	return t, err
}

// read returns the index in the file, 0 if the file has no valid one.
func (t tail) read() (index uint64, err error) {
	if t.file == nil {
		return 0, nil
	}
	var b [tailSize]byte
	n, err := t.file.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if n != tailSize || crc32.Checksum(b[:8], castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return 0, nil
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// write notes an index. A failure is logged: the commit is durable without the note.
func (t tail) write(index uint64) {
	b := binary.LittleEndian.AppendUint64(nil, index)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := t.file.WriteAt(b, 0); err != nil {
		t.logger.Warn("checkpoint: cannot write the journal's end to TAIL", "err", err)
	}
}

// close makes the file durable.
func (t tail) close() error {
	switch {
	case t.file == nil:
		return nil
	case t.readOnly:
		return t.file.Close()
	}
	return errors.Join(t.file.Sync(), t.file.Close())
}

package cache

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"millrace"
	"millrace/sources/store/remedy"
)

// part is an open file of the cache. mu guards its use: a part that is closed is not used any more.
type part struct {
	partKey
	of   *Blocks
	path string

	mu   sync.RWMutex
	file File                           // nil: closed
	good [partBlocks / 64]atomic.Uint64 // a bit for each block whose checksum this process found right
}

func (t *part) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return err
}

// begin checks the head of a file, or writes it. All processes write the same head, so several may at once. A file with
// another head loses its checksums.
func (t *part) begin() error {
	head := append([]byte(blocksMagic), t.key[:]...)
	head = binary.LittleEndian.AppendUint64(head, uint64(t.number))
	head = binary.LittleEndian.AppendUint64(head, xxh3.Hash(head))
	is := make([]byte, len(head))
	n, _ := t.file.ReadAt(is, 0)
	if n == len(head) && string(is) == string(head) {
		return nil
	}
	fresh := make([]byte, partHead)
	copy(fresh, head)
	if n == 0 { // checksums that another process writes now stay
		fresh = fresh[:len(head)]
	}
	_, err := t.file.WriteAt(fresh, 0)
	return err
}

// has reports whether the file has a checksum of a block.
func (t *part) has(block int64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.file != nil && (t.isGood(block) || t.sum(block) != 0)
}

func (t *part) isGood(block int64) bool {
	at := block % partBlocks
	return t.good[at/64].Load()&(1<<(at%64)) != 0
}

// readAt fills the beginning of p from byte off of the remote file on, up to the end of the part or to the first block
// without a good copy.
func (t *part) readAt(p []byte, off, size int64) (n int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.file == nil {
		return 0
	}
	p = p[:min(int64(len(p)), (t.number+1)*partBytes-off)]
	for n < len(p) {
		at := off + int64(n)
		if end := t.goodUntil(at, off+int64(len(p))); end > at {
			got, err := t.file.ReadAt(p[n:end-off], placeOf(0)+at%partBytes)
			n += got
			if int64(n) == end-off {
				continue
			}
			if t.hostFailed(err) {
				return n
			}
			at = off + int64(n) // the file was cut off
			bit := at / BlockBytes % partBlocks
			t.good[bit/64].And(^(uint64(1) << (bit % 64)))
		}
		got := t.check(p[n:], at, size)
		if got == 0 {
			return n
		}
		n += got
	}
	return n
}

// goodUntil returns the end of the good blocks from byte at on, at most end.
func (t *part) goodUntil(at, end int64) int64 {
	block := at / BlockBytes
	for block*BlockBytes < end && t.isGood(block) {
		block++
	}
	return max(min(block*BlockBytes, end), at)
}

// check reads the block with byte at, and copies its bytes from there on to the beginning of p. It returns 0 if the
// block is not good, and takes its checksum away.
func (t *part) check(p []byte, at, size int64) (n int) {
	block := at / BlockBytes
	sum := t.sum(block)
	if sum == 0 {
		return 0
	}
	from := at - block*BlockBytes
	length := min(BlockBytes, size-block*BlockBytes)
	all := p
	if from > 0 || int64(len(p)) < length {
		memory, ok := t.of.memory.Get().(*[BlockBytes]byte)
		if !ok {
			memory = new([BlockBytes]byte)
		}
		defer t.of.memory.Put(memory)
		all = memory[:]
	}
	all = all[:length]
	got, err := t.file.ReadAt(all, placeOf(block))
	if got == len(all) && blockSum(t.key, block, all) == sum {
		bit := block % partBlocks
		t.good[bit/64].Or(1 << (bit % 64))
		return copy(p, all[from:])
	}
	if t.hostFailed(err) {
		return 0
	}
	if t.of.room.isFixed {
		return 0 // it is fetched again each time
	}
	if _, err := t.file.WriteAt(make([]byte, 8), slotOf(block)); err != nil { // likewise
		t.of.log.Warn("a damaged block of the cache cannot be removed", "path", t.path, "err", err)
	}
	return 0
}

// hostFailed reports whether the host failed to read or write the file, so that its bytes may be good. If the
// descriptor may be dead, the next use of the part opens the file anew.
func (t *part) hostFailed(err error) bool {
	r, known := remedy.Of(err)
	if known && r == remedy.Anew {
		t.of.forget(t)
	}
	return known
}

// write keeps a block.
func (t *part) write(block int64, p []byte) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	sum := blockSum(t.key, block, p)
	if t.file == nil || t.sum(block) == sum {
		return nil
	}
	return t.of.room.change(int64(len(p)), func() (int64, error) {
		if _, err := t.file.WriteAt(p, placeOf(block)); err != nil {
			t.hostFailed(err)
			return 0, err
		}
		_, err := t.file.WriteAt(binary.LittleEndian.AppendUint64(nil, sum), slotOf(block))
		t.hostFailed(err)
		return int64(len(p)), err
	})
}

// sum returns the checksum of a block, 0 if there is none.
func (t *part) sum(block int64) uint64 {
	var b [8]byte
	if n, err := t.file.ReadAt(b[:], slotOf(block)); n != len(b) {
		t.hostFailed(err)
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

func slotOf(block int64) int64  { return partTable + 8*(block%partBlocks) }
func placeOf(block int64) int64 { return partHead + BlockBytes*(block%partBlocks) }

// blockSum returns the checksum of a block at its place. It is never 0.
func blockSum(key millrace.Digest, block int64, p []byte) uint64 {
	return xxh3.HashSeed(p, saltOf(key)+uint64(block)) | 1
}

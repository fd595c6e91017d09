package follow

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"millrace"
	"millrace/proto"
)

const (
	partSize  = 1 << 20   // bytes of a part of an image, about
	pieceSize = 1 << 20   // bytes of a message, at most
	mostBytes = 640 << 20 // of one batch: a commit has 256 MiB of bodies at most
)

// sendBatch sends a batch or a part of an image in pieces.
func sendBatch(send func(*proto.JournalPart) error, number uint64, batch []byte) error {
	sum := begin(number)
	for {
		piece := batch[:min(len(batch), pieceSize)]
		batch = batch[len(piece):]
		sum = extend(sum, piece)
		part := &proto.JournalBytes{Number: number, Bytes: piece, More: len(batch) > 0, Crc: sum}
		if err := send(&proto.JournalPart{Part: &proto.JournalPart_Bytes{Bytes: part}}); err != nil {
			return err
		}
		if len(batch) == 0 {
			return nil
		}
	}
}

// assembly puts pieces together to batches.
type assembly struct {
	next  uint64 // number of the batch that is due
	sum   uint32
	batch []byte
}

// await begins a sequence of batches with a number.
func (a *assembly) await(number uint64) { *a = assembly{next: number, sum: begin(number)} }

// add takes a piece, and returns the batch that it completes. It refuses a gap, a repeat and a wrong checksum.
func (a *assembly) add(p *proto.JournalBytes) ([]byte, error) {
	if p.Number != a.next {
		return nil, millrace.Errorf(millrace.ErrInvalid, "the leader sent batch %d of its journal, and batch %d is due",
			p.Number, a.next)
	}
	if len(a.batch)+len(p.Bytes) > mostBytes {
		return nil, millrace.Errorf(millrace.ErrInvalid, "batch %d of the leader's journal has more than %d MiB",
			p.Number, mostBytes>>20)
	}
	a.sum = extend(a.sum, p.Bytes)
	if a.sum != p.Crc {
		return nil, fmt.Errorf("batch %d of the leader's journal was damaged on the way: it has checksum %08x, not "+
			"%08x; the follower begins again with an image", p.Number, a.sum, p.Crc)
	}
	a.batch = append(a.batch, p.Bytes...)
	if p.More {
		return nil, nil
	}
	out := a.batch
	a.await(a.next + 1)
	return out, nil
}

// begin returns the checksum of a batch before its bytes: that of its number.
func begin(number uint64) uint32 { return extend(0, binary.LittleEndian.AppendUint64(nil, number)) }

func extend(sum uint32, b []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b)
}

package seal

import (
	"encoding/binary"

	"millrace"
)

const (
	width     = 8 // messages that are hashed side by side
	blockSize = 128
)

// lanes is the state of the hashes that the processor computes at once. The words of all lanes are side by side.
// compress knows the places of the fields.
type lanes struct {
	hash  [8][width]uint64
	bytes [width]uint64 // of the message, up to the end of the present block
	last  [width]uint64 // all ones if the present block is the last
}

// begin resets a lane for a new message: to the initialisation vector, with the parameters of an unkeyed hash.
func (s *lanes) begin(lane int) {
	for i, word := range [...]uint64{
		0x6a09e667f3bcc908 ^ 0x01010000 ^ uint64(len(millrace.Digest{})), 0xbb67ae8584caa73b,
		0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
		0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
	} {
		s.hash[i][lane] = word
	}
	s.bytes[lane], s.last[lane] = 0, 0
}

func (s *lanes) digest(lane int) (d millrace.Digest) {
	binary.LittleEndian.PutUint64(d[:8], s.hash[0][lane])
	binary.LittleEndian.PutUint64(d[8:], s.hash[1][lane])
	return d
}

// each hashes one message for each digest. message appends message number i to b; it is called in order, once for each.
func each(digests []millrace.Digest, message func(b []byte, i int) []byte) {
	if len(digests) < width || !hasLanes() {
		h, b := newHasher(), []byte(nil)
		for i := range digests {
			b = message(b[:0], i)
			digests[i] = h.digest(b)
		}
		return
	}
	inLanes(digests, message)
}

// work is the state of inLanes.
type work struct {
	lanes
	blocks [width][blockSize]byte
	whole  [width][]byte // memory of the messages
	rest   [width][]byte // not hashed yet
	number [width]int    // of the message; -1: none
	next   int           // message
}

// inLanes is each. A lane whose message ends takes the next one, so short messages do not wait for long ones.
func inLanes(digests []millrace.Digest, message func(b []byte, i int) []byte) {
	w := &work{}
	take := func(lane int) {
		w.number[lane] = -1
		if w.next < len(digests) {
			w.whole[lane] = message(w.whole[lane][:0], w.next)
			w.rest[lane], w.number[lane] = w.whole[lane], w.next
			w.begin(lane)
			w.next++
		}
	}
	for lane := range width {
		take(lane)
	}
	for done := 0; done < len(digests); {
		w.hashBlocks()
		for lane, i := range w.number {
			if i >= 0 && len(w.rest[lane]) == 0 {
				digests[i] = w.digest(lane)
				done++
				take(lane)
			}
		}
	}
}

// hashBlocks hashes the next block of every lane. A lane without a message gives a hash that is not used.
func (w *work) hashBlocks() {
	for lane := range width {
		n := copy(w.blocks[lane][:], w.rest[lane])
		clear(w.blocks[lane][n:])
		w.rest[lane] = w.rest[lane][n:]
		w.bytes[lane] += uint64(n)
		if len(w.rest[lane]) == 0 {
			w.last[lane] = ^uint64(0)
		}
	}
	compress(&w.lanes, &w.blocks)
}

package tokenize

import (
	"runtime"
	"sync"
	"unsafe"
)

// LeastEncoderBytes is the least memory of one encoder, without its scratch for texts.
func LeastEncoderBytes() int64 { return EncoderBytes(0) }

// EncoderBytes returns the memory of an encoder that may take so many bytes. It is at least LeastEncoderBytes, and it
// grows in steps up to a point where more would not help.
func EncoderBytes(most int64) int64 {
	own := int64(unsafe.Sizeof(Encoder{}))
	return own + rememberedBytes(doublings(most-own))
}

// lender lends a bounded number of encoders. An encoder takes megabytes and gets faster with use, so a borrower waits
// for a used one instead of making another. Whoever has an encoder needs nothing else to give it back.
type lender struct {
	mu       sync.Mutex
	given    *sync.Cond
	most     int        // encoders
	bytes    int64      // that each may take
	borrowed int        // of them
	idle     []*Encoder // the last used one at the end
}

func newLender(most int, bytes int64) *lender {
	l := &lender{most: max(most, 1), bytes: bytes}
	l.given = sync.NewCond(&l.mu)
	return l
}

func (l *lender) take(e *Encoding) *Encoder {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.borrowed == l.most {
		l.given.Wait()
	}
	l.borrowed++
	if n := len(l.idle); n > 0 {
		enc := l.idle[n-1]
		l.idle = l.idle[:n-1]
		return enc
	}
	return e.NewEncoder()
}

// give takes an encoder back; nil stands for one that is lost.
func (l *lender) give(enc *Encoder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.borrowed--
	if enc != nil {
		l.idle = append(l.idle, enc)
	}
	l.given.Signal()
}

// LimitEncoders sets the number of encoders that Append shares, at least 1, and the bytes that each encoder may take;
// by default GOMAXPROCS and the least. The caller calls it before the first Append.
func (e *Encoding) LimitEncoders(most int, bytes int64) { e.lent = newLender(most, bytes) }

func defaultLender() *lender { return newLender(runtime.GOMAXPROCS(0), 0) }

// Append is Encoder.Append with an encoder that it borrows. It waits while all are in use. tell, unless nil, is called
// about once a MiB, to show progress. It is safe for concurrent use.
func (e *Encoding) Append(dst []uint32, text []byte, tell func()) []uint32 {
	lender := e.lent
	enc := lender.take(e)
	var whole *Encoder // a panic leaves the encoder in an unknown state
	defer func() { lender.give(whole) }()
	enc.merger.stride = stride{left: strideBytes, tell: tell}
	dst = enc.Append(dst, text)
	enc.merger.stride.tell = nil
	whole = enc
	return dst
}

// strideBytes is the amount of work between two calls of tell.
const strideBytes = 1 << 20

// stride reports progress. Without it, a process that encodes an endless text would look stuck.
type stride struct {
	left int // bytes until the next call of tell
	tell func()
}

func (s *stride) went(bytes int) {
	if s.left -= bytes; s.left > 0 || s.tell == nil {
		return
	}
	s.left = strideBytes
	s.tell()
}

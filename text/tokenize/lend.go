package tokenize

import (
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// LeastEncoderBytes is the least memory of one encoder, without its scratch for texts.
func LeastEncoderBytes() int64 { return EncoderBytes(0) }

// EncoderBytes returns the most memory of an encoder that may take `most` bytes. It is at least LeastEncoderBytes, and
// it grows in steps up to a point where more would not help.
func EncoderBytes(most int64) int64 {
	own := int64(unsafe.Sizeof(Encoder{}))
	return own + rememberedBytes(doublings(most-own))
}

// lender lends a bounded number of encoders. An encoder takes megabytes and gets faster with use, so a borrower waits
// for a used one instead of making another. A borrower needs no other resource to give its encoder back.
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

// takeIdle lends up to most further encoders without waiting.
func (l *lender) takeIdle(e *Encoding, most int) []*Encoder {
	l.mu.Lock()
	defer l.mu.Unlock()
	var encoders []*Encoder
	for ; len(encoders) < most && l.borrowed < l.most; l.borrowed++ {
		n := len(l.idle)
		if n == 0 {
			encoders = append(encoders, e.NewEncoder())
			continue
		}
		encoders = append(encoders, l.idle[n-1])
		l.idle = l.idle[:n-1]
	}
	return encoders
}

// Append is Encoder.Append with an encoder that it borrows. It waits while all are in use. For a text of megabytes, it
// also borrows those that are idle. tell, unless nil, is called about once a MiB, to show progress. Append is safe for
// concurrent use.
func (e *Encoding) Append(dst []uint32, text []byte, tell func()) []uint32 {
	lender := e.lent
	enc := lender.take(e)
	var whole *Encoder // a panic leaves the encoder in an unknown state
	defer func() { lender.give(whole) }()
	enc.merger.stride = stride{left: strideBytes, tell: tell}
	if len(text) >= 2*shareBytes && e.isDivisible() {
		dst = e.appendShared(dst, text, enc)
	} else {
		dst = enc.Append(dst, text)
	}
	enc.merger.stride.tell = nil
	if enc.room.use(len(text), time.Now()) {
		enc.forget()
	}
	whole = enc
	return dst
}

// shareBytes is the least part of a text that an encoder of its own encodes.
const shareBytes = 1 << 19

// isDivisible reports whether the parts of a text between cuts of the splitter encode as the text does.
func (e *Encoding) isDivisible() bool { return e.splitter != nil && e.added == nil }

// share is a part of a text, with its ids once done is closed. The caller encodes a share without done.
type share struct {
	text   []byte
	ids    []uint32
	failed any // the value of a panic
	done   chan struct{}
}

// appendShared appends the ids of a long text. While enc encodes the first of some parts, idle encoders encode the
// others. The ids of those wait in memory: parts are short, and each encoder has one.
func (e *Encoding) appendShared(dst []uint32, text []byte, enc *Encoder) []uint32 {
	scratch := make([][]uint32, runtime.GOMAXPROCS(0)-1)
	for pos := 0; pos < len(text); {
		end := e.splitter.Cut(text, min(pos+shareBytes, len(text)))
		others := e.lent.takeIdle(e, min((len(text)-end)/shareBytes, len(scratch)))
		shares := []*share{{text: text[pos:end]}}
		for pos = end; len(shares) <= len(others) && pos < len(text); pos = end {
			end = e.splitter.Cut(text, min(pos+shareBytes, len(text)))
			shares = append(shares, &share{text: text[pos:end]})
		}
		dst = e.appendShares(dst, shares, enc, others, scratch)
	}
	return dst
}

// encode encodes a share with another encoder, which is lost in a panic.
func (s *share) encode(other **Encoder, scratch []uint32) {
	defer close(s.done)
	defer func() {
		if s.failed = recover(); s.failed != nil {
			*other = nil
		}
	}()
	s.ids = (*other).Append(scratch[:0], s.text)
}

// appendShares appends the ids of shares in their order. It gives the other encoders back when all shares are done.
func (e *Encoding) appendShares(
	dst []uint32, shares []*share, enc *Encoder, others []*Encoder, scratch [][]uint32,
) []uint32 {
	for i, s := range shares[1:] {
		if len(s.text) <= 2*shareBytes {
			s.done = make(chan struct{})
			go s.encode(&others[i], scratch[i])
		}
	}
	defer func() {
		for i, s := range shares[1:] {
			if s.done != nil {
				<-s.done
				scratch[i] = s.ids
			}
		}
		for _, other := range others {
			e.lent.give(other)
		}
	}()
	for _, s := range shares {
		if s.done == nil {
			dst = enc.Append(dst, s.text)
			continue
		}
		<-s.done
		if s.failed != nil {
			panic(s.failed)
		}
		dst = append(dst, s.ids...)
		enc.merger.stride.went(len(s.text))
	}
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

package tokenize

import (
	"runtime"
	"sync"
)

// lender keeps encoders that nobody uses. One is dear to make and the better the longer it is used, and so a process
// has about as many as processors, however many goroutines encode now and then.
type lender struct {
	mu   sync.Mutex
	idle []*Encoder // the one that was used last at the end
}

func (l *lender) take(e *Encoding) *Encoder {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.idle); n > 0 {
		enc := l.idle[n-1]
		l.idle = l.idle[:n-1]
		return enc
	}
	return e.NewEncoder()
}

func (l *lender) give(enc *Encoder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.idle) < runtime.GOMAXPROCS(0) {
		l.idle = append(l.idle, enc)
	}
}

// Append is Encoder.Append for who has no encoder: it is lent one. tell, unless nil, is called about once a MiB, so
// that somebody who waits knows that it comes forward. Safe for concurrent use.
func (e *Encoding) Append(dst []uint32, text []byte, tell func()) []uint32 {
	enc := e.lent.take(e)
	enc.merger.stride = stride{left: strideBytes, tell: tell}
	dst = enc.Append(dst, text)
	enc.merger.stride.tell = nil
	e.lent.give(enc) // not where it panicked
	return dst
}

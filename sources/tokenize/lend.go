package tokenize

import (
	"runtime"
	"sync"
)

// lender keeps idle encoders. An encoder is expensive to make and gets faster with use. So a process keeps about one
// for each processor, also if many goroutines encode now and then.
type lender struct {
	mu   sync.Mutex
	idle []*Encoder // the last used one at the end
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

// Append is Encoder.Append with an encoder that it borrows. tell, unless nil, is called about once a MiB, to show
// progress. It is safe for concurrent use.
func (e *Encoding) Append(dst []uint32, text []byte, tell func()) []uint32 {
	enc := e.lent.take(e)
	enc.merger.stride = stride{left: strideBytes, tell: tell}
	dst = enc.Append(dst, text)
	enc.merger.stride.tell = nil
	e.lent.give(enc) // a panic leaves it out
	return dst
}

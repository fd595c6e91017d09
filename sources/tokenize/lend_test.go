package tokenize

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestEncodersAreBounded: while all encoders are in use, further texts wait for them, and no encoder is made anew.
func TestEncodersAreBounded(t *testing.T) {
	const most = 2
	e := load(t, "gpt2")
	e.LimitEncoders(most, 0)
	text := bytes.Repeat([]byte("a word "), 2*strideBytes/7)
	want := e.NewEncoder().Append(nil, text)
	inside, release := make(chan struct{}, 12), make(chan struct{})
	var group sync.WaitGroup
	var done atomic.Int32
	for range 12 {
		group.Go(func() {
			first := true
			got := e.Append(nil, text, func() {
				if first {
					first = false
					inside <- struct{}{}
					<-release
				}
			})
			done.Add(1)
			if !slices.Equal(got, want) {
				t.Error("a shared encoder gave other tokens")
			}
		})
	}
	for range most {
		<-inside
	}
	select {
	case <-inside:
		t.Errorf("more than %d texts were encoded at once", most)
	case <-time.After(50 * time.Millisecond):
	}
	if done.Load() != 0 {
		t.Error("a text did not wait for an encoder")
	}
	close(release)
	group.Wait()
	if n := len(e.lent.idle); n != most || e.lent.borrowed != 0 {
		t.Errorf("%d encoders were made, %d are still lent; want %d and 0", n, e.lent.borrowed, most)
	}
}

// TestLostEncoderIsReplaced: after a panic, the next text gets an encoder.
func TestLostEncoderIsReplaced(t *testing.T) {
	e := load(t, "gpt2")
	e.LimitEncoders(1, 0)
	text := bytes.Repeat([]byte("a word "), 2*strideBytes/7)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not come through")
			}
		}()
		e.Append(nil, text, func() { panic("lost") })
	}()
	if got, want := e.Append(nil, text, nil), e.NewEncoder().Append(nil, text); !slices.Equal(got, want) {
		t.Error("the encoder after a panic gave other tokens")
	}
}

package tokenize

import (
	"bytes"
	"runtime"
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

// TestRoomFollowsUse: an encoder's memory doubles while it is busy, up to its most, and stays while it is not.
func TestRoomFollowsUse(t *testing.T) {
	now := time.Unix(1000, 0)
	r := room{most: 2}
	for range 1000 {
		now = now.Add(time.Second)
		if r.use(busyBytes/12, now) {
			t.Fatal("the room of a quiet encoder doubled")
		}
	}
	for i := range 5 {
		doubled := false
		for range 9 {
			now = now.Add(time.Second)
			doubled = r.use(busyBytes/8, now) || doubled
		}
		now = now.Add(2 * busyTime)
		if want := i < 2; doubled != want {
			t.Errorf("busy time %d: the room doubled: %t, want %t", i, doubled, want)
		}
	}
}

// TestGrownEncoderEncodesTheSame: an encoder that got more memory gives the same ids.
func TestGrownEncoderEncodesTheSame(t *testing.T) {
	e := load(t, "gpt2")
	e.LimitEncoders(1, EncoderBytes(64<<20))
	text := bytes.Repeat([]byte("antidisestablishmentarianism and some words, 12345 "), 100)
	want := e.NewEncoder().Append(nil, text)
	for i := range 1 + maxDoublings {
		if got := e.Append(nil, text, nil); !slices.Equal(got, want) {
			t.Errorf("after %d doublings the ids differ", i)
		}
		enc := e.lent.idle[0]
		enc.room.since, enc.room.bytes = time.Now(), busyBytes
	}
	if got := e.lent.idle[0].room.doublings; got != maxDoublings {
		t.Errorf("the memory doubled %d times, want %d", got, maxDoublings)
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

// TestLongTextsAreShared: several encoders give the ids of one, for texts with many cuts and with few.
func TestLongTextsAreShared(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	lines := bytes.Join(corpus(t, 7*shareBytes/2), []byte("\n\n"))
	texts := map[string][]byte{
		"documents":     lines,
		"one line":      bytes.ReplaceAll(lines, []byte("\n"), []byte(" ")),
		"one long part": append(append(bytes.Clone(lines), bytes.Repeat([]byte("= "), 5*shareBytes/4)...), lines...),
		"spaces":        bytes.ReplaceAll(lines, []byte("\n"), []byte(" \n\n")),
	}
	for _, name := range testEncodings() {
		e := load(t, name)
		e.LimitEncoders(4, 0)
		enc := e.NewEncoder()
		for kind, text := range texts {
			told := 0
			want := enc.Append([]uint32{1}, text)
			if got := e.Append([]uint32{1}, text, func() { told++ }); !slices.Equal(got, want) {
				t.Errorf("%s: several encoders give other ids for %s", name, kind)
			}
			if least := len(text)/strideBytes - 1; told < least {
				t.Errorf("%s: %d calls of tell for %s, want %d", name, told, kind, least)
			}
		}
		if n := len(e.lent.idle); n < 2 || n > 3 || e.lent.borrowed != 0 {
			t.Errorf("%s: %d encoders were made, %d are still lent; want 2 or 3, and 0", name, n, e.lent.borrowed)
		}
	}
}

// TestAPanicInAShareIsTheCallers: a panic of a borrowed encoder reaches the caller, and all encoders are given back.
func TestAPanicInAShareIsTheCallers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	e := load(t, "gpt2")
	e.LimitEncoders(2, 0)
	text := bytes.Repeat([]byte("A line of words.\n"), 4*shareBytes/17)
	broken := e.NewEncoder()
	broken.encoding = nil
	e.lent.idle = []*Encoder{broken, e.NewEncoder()}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not reach the caller")
			}
		}()
		e.Append(nil, text, nil)
	}()
	if e.lent.borrowed != 0 {
		t.Errorf("%d encoders are still lent", e.lent.borrowed)
	}
	if got, want := e.Append(nil, text, nil), e.NewEncoder().Append(nil, text); !slices.Equal(got, want) {
		t.Error("other ids after the panic")
	}
}

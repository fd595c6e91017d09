package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pair connects two hosts.
func pair(t *testing.T, n *Net) (near, far net.Conn, a, b *Host) {
	t.Helper()
	a, b = n.Host("a"), n.Host("b")
	l, err := b.Listen("there")
	if err != nil {
		t.Fatal(err)
	}
	if near, err = a.Dial(context.Background(), "there"); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far, a, b
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if n, err := io.WriteString(c, text); err != nil || n != len(text) {
		t.Errorf("wrote %d of %q: %v", n, text, err)
	}
}

// hear reads the expected bytes and returns the time that this took.
func hear(t *testing.T, c net.Conn, want string) time.Duration {
	t.Helper()
	start, got := time.Now(), make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("got %q, want %q: %v", got, want, err)
	}
	return time.Since(start)
}

func TestBytesComeInOrderAndTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		n.Blow(Weather{Latency: 50 * time.Millisecond, Jitter: 20 * time.Millisecond, Bytes: 1000, Read: 3}, 5)
		near, far, _, _ := pair(t, n)
		var want bytes.Buffer
		for i := range 100 {
			text := string(bytes.Repeat([]byte{byte('a' + i%26)}, 10))
			want.WriteString(text)
			send(t, near, text)
		}
		if took := hear(t, far, want.String()); took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("1,000 bytes at 1,000 a second took %v", took)
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v", err)
		}
		send(t, far, "in vain") // the other end is closed, and only a read notices
	})
}

func TestHoldsDelayAndLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		near, far, a, b := pair(t, n)
		oneWay := func() func() { return n.Hold("a", "b") }
		for name, hold := range map[string]func() func(){"one way": oneWay, "a": a.Freeze, "b": b.Freeze} {
			release := hold()
			time.AfterFunc(time.Second, release)
			send(t, near, "held")
			if name == "one way" {
				send(t, far, "free")
				if took := hear(t, near, "free"); took != 0 {
					t.Errorf("the free way took %v", took)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if c, err := a.Dial(ctx, "there"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: dialled %v, %v", name, c, err)
			}
			cancel()
			if took := hear(t, far, "held"); took != time.Second-time.Millisecond {
				t.Errorf("%s: held for %v", name, took)
			}
		}
	})
}

func TestDeadHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		n.Blow(Weather{Latency: time.Millisecond}, 1)
		near, far, _, b := pair(t, n)
		send(t, far, "last words")
		b.Die()
		send(t, near, "nobody hears")
		if _, err := far.Write([]byte("a ghost")); err != nil {
			t.Errorf("the silent end does not notice: %v", err)
		}
		hear(t, near, "last words")
		if _, err := near.Read(make([]byte, 9)); !errors.Is(err, io.EOF) {
			t.Errorf("after a kill: %v", err)
		}
		if _, err := near.(*conn).host.Dial(t.Context(), "there"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialled the dead: %v", err)
		}
		if _, err := b.Listen("there"); err == nil {
			t.Error("the dead listen")
		}
		near, far, _, b = pair(t, n)
		giveUp := b.Vanish()
		time.AfterFunc(time.Minute, giveUp)
		start := time.Now()
		if _, err := near.Read(make([]byte, 9)); !errors.Is(err, syscall.ECONNRESET) ||
			time.Since(start) != time.Minute {
			t.Errorf("of a host that vanished: %v after %v", err, time.Since(start))
		}
		if _, err := far.Read(make([]byte, 9)); err == nil {
			t.Error("a host that vanished reads")
		}
	})
}

func TestBrokenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		n.Blow(Weather{Latency: time.Millisecond, Fuse: 10}, 3)
		var cuts []int
		for range 20 {
			near, far, _, _ := pair(t, n)
			k, err := near.Write(make([]byte, 30))
			if err == nil { // the other direction breaks
				near, far = far, near
				k, err = near.Write(make([]byte, 30))
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("wrote %d bytes: %v", k, err)
			}
			if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the end that noticed the break reads %v", err)
			}
			got, err := io.ReadAll(far)
			if !errors.Is(err, syscall.ECONNRESET) || len(got) != k {
				t.Errorf("read %d of %d: %v", len(got), k, err)
			}
			cuts = append(cuts, k)
		}
		if slices.Min(cuts) < 1 || slices.Max(cuts) > 20 || slices.Min(cuts) == slices.Max(cuts) {
			t.Errorf("broke after %v", cuts)
		}
		n.Blow(Weather{}, 0)
		near, far, _, _ := pair(t, n)
		send(t, far, "lost")
		n.Reset("there")
		for _, c := range []net.Conn{near, far} {
			if _, err := c.Read(make([]byte, 9)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("after a reset: %v", err)
			}
		}
	})
}

func TestDeadlinesAndFullBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far, _, _ := pair(t, New())
		_ = near.SetDeadline(time.Now().Add(time.Second))
		var timeout net.Error
		if _, err := near.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("read: %v", err)
		}
		_ = near.SetDeadline(time.Now().Add(time.Second))
		written, err := 0, error(nil)
		for err == nil {
			var k int
			k, err = near.Write(make([]byte, 100<<10))
			written += k
		}
		if !errors.As(err, &timeout) || written < bufferBytes || written > bufferBytes+100<<10 {
			t.Errorf("wrote %d: %v", written, err)
		}
		_ = near.SetDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { hear(t, far, string(make([]byte, written))) })
		start := time.Now()
		if send(t, near, "more"); time.Since(start) != time.Second {
			t.Errorf("a full buffer was written to after %v", time.Since(start))
		}
		synctest.Wait()
	})
}

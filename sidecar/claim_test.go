package sidecar

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// connected returns a session and its client's end.
func connected(t *testing.T) (*session, *net.UnixConn) {
	t.Helper()
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"}
	listener, err := net.ListenUnix("unixpacket", address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.DialUnix("unixpacket", nil, address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	p, err := peerOf(conn, []uint32{uint32(os.Getuid())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.close(); conn.Close(); client.Close() })
	return &session{conn: conn, peer: p, events: make(chan event, 1)}, client
}

// TestAClaimWhoseHolderHungUp: a client waits for the claim of a holder that has hung up, longer than grace if the
// sidecar is slow to notice.
func TestAClaimWhoseHolderHungUp(t *testing.T) {
	holder, client := connected(t)
	s := newClaim(0, 0)
	if err := s.take(context.Background(), holder, false); err != nil {
		t.Fatal(err)
	}
	client.Close()
	took := make(chan error, 1)
	go func() { took <- s.take(context.Background(), &session{}, false) }() // waited for below
	select {
	case err := <-took:
		t.Fatalf("the holder has hung up, and the next client is told: %v", err)
	case <-time.After(2 * grace):
	}
	s.release()
	if err := <-took; err != nil {
		t.Error(err)
	}
}

// TestADeadTrainerOutranksNobody: a trainer asked to continue and died. The sidecar gets to its request when the next
// trainer has the claim, which must not be refused.
func TestADeadTrainerOutranksNobody(t *testing.T) {
	for _, isDead := range []bool{false, true} {
		holder, _ := connected(t)
		s := newClaim(0, 0)
		if err := s.take(t.Context(), holder, false); err != nil {
			t.Fatal(err)
		}
		before, client := connected(t)
		if isDead {
			client.Close()
		}
		ctx, end := context.WithTimeout(t.Context(), grace)
		defer end()
		if err := s.take(ctx, before, true); err == nil {
			t.Error("it took the claim of a holder that lives")
		}
		if outranks := len(holder.events) > 0; outranks == isDead {
			t.Errorf("dead %t: it outranks the next trainer: %t", isDead, outranks)
		}
	}
}

// TestAClaimOfARunThatFailed: a client that waits for the claim when the run fails receives the reason.
func TestAClaimOfARunThatFailed(t *testing.T) {
	s := newClaim(0, 0)
	if err := s.take(t.Context(), &session{}, false); err != nil {
		t.Fatal(err)
	}
	s.noteLeaving(s.holder) // its commits are still on their way
	ctx, fail := context.WithCancelCause(t.Context())
	fail(&RunError{Reason: "the journal's disk is full"})
	var run *RunError
	if err := s.take(ctx, &session{}, false); !errors.As(err, &run) {
		t.Errorf("it is told: %v", err)
	}
}

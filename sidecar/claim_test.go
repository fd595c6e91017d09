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

// TestAClaimWhoseHolderHungUp: a client waits for the claim of a holder that has hung up, longer than grace if the
// sidecar is slow to notice.
func TestAClaimWhoseHolderHungUp(t *testing.T) {
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
	defer conn.Close()
	p, err := peerOf(conn, []uint32{uint32(os.Getuid())})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	s := newClaim(0, 0)
	if err := s.take(context.Background(), &session{conn: conn, peer: p}, false); err != nil {
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

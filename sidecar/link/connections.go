package link

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/internal/wire"
	"millrace/sidecar/retrieve"
)

// retryAfter is the pause before a lost connection is tried again.
const retryAfter = retrieve.RetryAfter

// connections holds one connection to each address. A new process gets a new address, so the connection to a process
// that is gone can be closed.
type connections struct {
	net          seam.Net
	credentials  *secure.Credentials
	orchestrator string      // its address
	others       secure.Role // of the processes at all other addresses

	mu        sync.Mutex
	byAddress map[string]*grpc.ClientConn
	closed    bool
}

// dial returns the connection to an address and creates it if necessary. It does not wait for the other process.
func (c *connections) dial(address string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.byAddress[address]; conn != nil {
		return conn, nil
	}
	if c.closed {
		return nil, fmt.Errorf("reach %s: this sidecar is leaving: %w", address, context.Canceled)
	}
	role := c.others
	if address == c.orchestrator {
		role = secure.Orchestrator
	}
	conn, err := grpc.NewClient(secure.Target, append(c.credentials.Client(c.net, address, role),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewPayload())),
		grpc.WithReadBufferSize(512<<10), grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(16<<20), grpc.WithInitialConnWindowSize(32<<20),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: time.Second,
			Backoff: backoff.Config{
				BaseDelay:  10 * time.Millisecond,
				Multiplier: 1.5,
				MaxDelay:   200 * time.Millisecond,
			},
		}))...)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", address, err)
	}
	c.byAddress[address] = conn
	return conn, nil
}

// keepOnly closes the connections to all other addresses.
func (c *connections) keepOnly(addresses []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, conn := range c.byAddress {
		if !slices.Contains(addresses, address) {
			delete(c.byAddress, address)
			conn.Close()
		}
	}
}

// closeAll closes every connection. A later dial fails, because its connection would stay open.
func (c *connections) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.byAddress {
		conn.Close()
	}
}

// peers are the connections to the sidecars of other hosts, as a tier uses them.
type peers struct{ *connections }

// Dial implements tier.Network.
func (p peers) Dial(address string) (grpc.ClientConnInterface, error) { return p.dial(address) }

// KeepOnly implements tier.Network.
func (p peers) KeepOnly(addresses []string) { p.keepOnly(addresses) }

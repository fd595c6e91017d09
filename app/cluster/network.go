package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"millrace"
	"millrace/internal/seam"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/hosts"
)

// Network is seam.Net for the roles of a run with several hosts: it also dials the leader, wherever that is now. It
// asks etcd before each dial, and ends the dial if the leader changes meanwhile. While etcd does not answer, it dials
// the last leader that it knows.
type Network struct {
	seam.Net
	File *File

	mu     sync.Mutex
	client *hosts.Client // nil: not connected yet
	known  string        // address of the last leader
}

// Leader returns the address of the orchestrator of a stream for Network.Dial. One process leads all streams at one
// port, and finds the stream of a call by this address.
func Leader(stream millrace.Stream) string { return string(stream) + leaderSuffix }

// leaderSuffix is no end of a host:port.
const leaderSuffix = ".leader"

// newNetwork returns the network of a cluster. It connects to nothing before a dial.
func newNetwork(f *File, below seam.Net) *Network {
	return &Network{Net: below, File: f}
}

// Dial implements seam.Net.
func (n *Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	if !strings.HasSuffix(address, leaderSuffix) {
		return n.Net.Dial(ctx, address)
	}
	found, err := n.leader(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the host that plans the run: %w", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end(nil)
	watch.Go(func() {
		if n.awaitOther(ctx, found) == nil {
			end(errReplaced)
		}
	})
	conn, err := n.Net.Dial(ctx, found)
	if err != nil && context.Cause(ctx) == errReplaced {
		return nil, errReplaced
	}
	return conn, err
}

// atOnce is the time of an ordinary dial. A longer one is watched: a host without power or network answers nothing.
const atOnce = 100 * time.Millisecond

// awaitOther returns nil when the leader is not at an address, after atOnce at the earliest.
func (n *Network) awaitOther(ctx context.Context, address string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-seam.System{}.After(atOnce):
	}
	client, err := n.Client(ctx)
	if err != nil {
		return err
	}
	return client.AwaitOther(ctx, address)
}

// errReplaced ends the dial of a host that does not lead any more.
var errReplaced = errors.New("the host that was dialled does not plan the run any more")

// errNoLeader: the run has no leader now.
var errNoLeader = errors.New("no host plans it now: the hosts elect the next one")

// leader returns the address of the leader.
func (n *Network) leader(ctx context.Context) (string, error) {
	client, err := n.Client(ctx)
	if err != nil {
		return "", err
	}
	h, err := client.Leader(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil && n.known != "":
		return n.known, nil
	case err != nil:
		return "", errors.New(lease.Reason(err))
	case h.Address == "":
		return "", errNoLeader
	}
	n.known = h.Address
	return h.Address, nil
}

// Client returns the connection to etcd, which lives until Close.
func (n *Network) Client(ctx context.Context) (*hosts.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil {
		client, err := hosts.Dial(ctx, n.File.Etcd())
		if err != nil {
			return nil, err
		}
		n.client = client
	}
	return n.client, nil
}

// Hosts returns the registered hosts of the run, by rank, and the leader.
func (n *Network) Hosts(ctx context.Context) (list []hosts.Host, leader lease.Holder, err error) {
	client, err := n.Client(ctx)
	if err != nil {
		return nil, leader, err
	}
	if list, err = client.List(ctx); err == nil {
		leader, err = client.Leader(ctx)
	}
	if err != nil {
		return nil, leader, errors.New("list the hosts of the run: " + n.File.Etcd().Explain(ctx, err))
	}
	return list, leader, nil
}

// Close closes the connection to etcd.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client != nil {
		n.client.Close()
	}
}

var _ seam.Net = (*Network)(nil)

package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace"
	"millrace/internal/seam"
	"millrace/orchestrator/lease"
)

// patience bounds one call to etcd.
const patience = 2 * time.Second

// Client asks etcd about one run. Its methods may be called from any goroutine.
type Client struct {
	cfg  lease.EtcdConfig
	etcd *clientv3.Client
}

// Dial returns a client of the cluster that a configuration names. It does not wait for the cluster, except for a
// password to be checked. The caller closes the client.
func Dial(ctx context.Context, cfg lease.EtcdConfig) (*Client, error) {
	if cfg.Clock == nil {
		cfg.Clock = seam.System{}
	}
	etcd, err := lease.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Client{cfg, etcd}, nil
}

// Close closes the connections.
func (c *Client) Close() { c.etcd.Close() }

// List returns the registered hosts of the run: those with ranks by rank, then the others by name.
func (c *Client) List(ctx context.Context) ([]Host, error) {
	list, _, err := c.list(ctx)
	return list, err
}

// list also returns the revision of etcd at which the hosts were read.
func (c *Client) list(ctx context.Context) ([]Host, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := c.etcd.Get(ctx, prefix(c.cfg.Run), clientv3.WithPrefix()) // linearizable
	if err != nil {
		return nil, 0, err
	}
	out := make([]Host, len(got.Kvs))
	for i, kv := range got.Kvs {
		if err := json.Unmarshal(kv.Value, &out[i]); err != nil {
			return nil, 0, millrace.Errorf(millrace.ErrMismatch,
				"key %s of etcd is no host of a run: is the name %q of another program?", kv.Key, c.cfg.Run)
		}
	}
	return out, got.Header.Revision, nil
}

// Leader returns the process that plans the run; the zero Holder if none does.
func (c *Client) Leader(ctx context.Context) (lease.Holder, error) {
	h, _, err := c.leader(ctx)
	return h, err
}

// leader also returns the revision at which the leader was read.
func (c *Client) leader(ctx context.Context) (h lease.Holder, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := c.etcd.Get(ctx, lease.LeaderKey(c.cfg)) // linearizable
	if err != nil {
		return h, 0, err
	}
	if len(got.Kvs) == 0 {
		return h, got.Header.Revision, nil
	}
	if err := json.Unmarshal(got.Kvs[0].Value, &h); err != nil {
		return h, 0, fmt.Errorf("read the election key of run %s: %w", c.cfg.Run, err)
	}
	return h, got.Header.Revision, nil
}

// AwaitOther returns nil when the process at an address does not lead. Else it returns an error when ctx ends. While
// etcd does not answer, it asks again.
func (c *Client) AwaitOther(ctx context.Context, address string) error {
	for ctx.Err() == nil {
		h, revision, err := c.leader(ctx)
		switch {
		case err == nil && h.Address != address:
			return nil
		case err == nil:
			err = c.awaitChange(ctx, lease.LeaderKey(c.cfg), revision+1)
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-c.cfg.Clock.After(retryDelay):
			}
		}
	}
	return ctx.Err()
}

func prefix(run string) string { return "millrace/" + run + "/hosts/" }

// key is the place of a host. Numbers sort before names, so hosts with ranks come first, by rank.
func (h Host) key(run string) string {
	if h.Ranks == 0 {
		return prefix(run) + h.Label
	}
	return fmt.Sprintf("%s%06d", prefix(run), h.Began)
}

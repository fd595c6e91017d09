package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace/orchestrator/lease"
)

// Outcome is how a run ended. Hosts of the same incarnation end with it.
type Outcome struct {
	Incarnation string `json:"incarnation"`
	Reason      string `json:"reason"` // why it failed; empty: every rank has consumed the stream
}

// Err returns why the run failed, nil if every rank has consumed the stream.
func (o Outcome) Err() error {
	if o.Reason == "" {
		return nil
	}
	return errors.New(o.Reason)
}

// end is how long Record tries to reach etcd.
const end = 10 * time.Second

// Record publishes to the other hosts of an incarnation how the run ended.
func (c *Client) Record(ctx context.Context, o Outcome) error {
	value, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode the outcome of the run: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, end)
	defer cancel()
	for {
		call, done := context.WithTimeout(ctx, patience)
		_, err := c.etcd.Put(call, outcomeKey(c.cfg.Run), string(value))
		done()
		if err == nil || ctx.Err() != nil || lease.IsFinal(err) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-c.cfg.Clock.After(retryDelay):
		}
	}
}

// AwaitOutcome returns the outcome of an incarnation when there is one. While etcd does not answer, it asks again.
func (c *Client) AwaitOutcome(ctx context.Context, incarnation string) (Outcome, error) {
	for {
		o, revision, err := c.outcome(ctx)
		if err == nil && o.Incarnation == incarnation {
			return o, nil
		}
		if err == nil {
			err = c.awaitChange(ctx, outcomeKey(c.cfg.Run), revision+1)
		}
		if ctx.Err() != nil {
			return Outcome{}, ctx.Err()
		}
		if err != nil && lease.IsFinal(err) {
			return Outcome{}, err
		}
		select {
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		case <-c.cfg.Clock.After(retryDelay):
		}
	}
}

func (c *Client) outcome(ctx context.Context) (o Outcome, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := c.etcd.Get(ctx, outcomeKey(c.cfg.Run))
	if err != nil {
		return o, 0, err
	}
	if len(got.Kvs) > 0 {
		err = json.Unmarshal(got.Kvs[0].Value, &o)
	}
	return o, got.Header.Revision, err
}

func outcomeKey(run string) string { return "millrace/" + run + "/outcome" }

// awaitChange blocks until a key may have changed since a revision, at most for relist: a watch may be lost.
func (c *Client) awaitChange(ctx context.Context, key string, since int64) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), relist)
	defer cancel()
	for change := range c.etcd.Watch(ctx, key, clientv3.WithRev(since)) {
		if change.CompactRevision > 0 || len(change.Events) > 0 {
			return nil
		}
		if err := change.Err(); err != nil {
			return err
		}
	}
	return nil
}

// relist is the longest time without a look at a key.
const relist = 10 * time.Second

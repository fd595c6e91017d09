package lease

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lookAgain is the time between two questions about a lease that may soon be over.
const lookAgain = 100 * time.Millisecond

// awaitStopped blocks until the holder of a lease has passed its own deadline, or etcd has ended the lease. A candidate
// need not wait for the rest of etcd's time. The holder's deadline counts from the sending of its last renewal, and
// etcd's time from the arrival, so etcd's answer errs to the safe side.
//
// etcd answers in whole seconds, rounded down. With a margin of less than a second, the answer never suffices.
func (e *Etcd) awaitStopped(ctx context.Context, client *clientv3.Client, held clientv3.LeaseID) error {
	for {
		call, cancel := context.WithTimeout(ctx, e.cfg.call())
		got, err := client.TimeToLive(call, held) // the member that leads etcd answers
		cancel()
		if err != nil {
			return err
		}
		left := time.Duration(got.TTL) * time.Second // -1 s: etcd has no such lease
		margin := marginOf(time.Duration(got.GrantedTTL) * time.Second)
		if left < 0 || left+time.Second <= margin {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.cfg.Clock.After(max(lookAgain, left-margin)):
		}
	}
}

// end ends the lease of a process that has stopped.
func (e *Etcd) end(ctx context.Context, client *clientv3.Client, held clientv3.LeaseID) error {
	call, cancel := context.WithTimeout(ctx, e.cfg.call())
	defer cancel()
	if _, err := client.Revoke(call, held); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	return nil
}

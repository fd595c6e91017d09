package lease

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Times of a candidate that waits for a holder to stop.
const (
	lookAgain = 100 * time.Millisecond // between two questions about a lease that may soon be over
	spare     = 200 * time.Millisecond // beyond the holder's deadline, for clocks of different speed
)

// awaitStopped blocks until the holder of a lease has passed its own deadline, or etcd has ended the lease. A candidate
// need not wait for the rest of etcd's time. The holder's deadline counts from the sending of its last renewal, and
// etcd's time from the arrival, so etcd's answer errs to the safe side.
//
// etcd answers in whole seconds, rounded down. The candidate's clock counts on from the first answer of a second. A
// renewal shows: for a second after it, the answer is the highest one.
func (e *Etcd) awaitStopped(ctx context.Context, client *clientv3.Client, held clientv3.LeaseID) error {
	var since time.Duration // boot time of the first answer that was the last one
	for last := int64(-1); ; {
		call, cancel := context.WithTimeout(ctx, e.cfg.call())
		got, err := client.TimeToLive(call, held) // the member that leads etcd answers
		cancel()
		if err != nil {
			return err
		}
		isRenewed := got.TTL >= got.GrantedTTL-1
		if got.TTL != last || isRenewed {
			last, since = got.TTL, time.Duration(e.cfg.Clock.Boottime())
		}
		wait := e.untilStopped(got, since)
		if got.TTL < 0 || wait <= 0 { // etcd has no such lease, or the holder has stopped
			return nil
		}
		pause := lookAgain
		if isRenewed {
			pause = max(lookAgain, wait-2*time.Second) // then it sees the changes of seconds
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.cfg.Clock.After(pause):
		}
	}
}

// untilStopped returns the time until the holder has passed its deadline, by an answer that etcd has given since a boot
// time, if it renews the lease no more.
func (e *Etcd) untilStopped(got *clientv3.LeaseTimeToLiveResponse, since time.Duration) time.Duration {
	left := time.Duration(got.TTL+1) * time.Second // at most, at that time
	margin := marginOf(time.Duration(got.GrantedTTL) * time.Second)
	return left - margin + spare - (time.Duration(e.cfg.Clock.Boottime()) - since)
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

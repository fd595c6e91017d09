package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace"
)

// etcdLease is the lease that an Etcd was granted, with the election key. It owns its client. Each stream has a part of
// it, and the lease is released with the last of them.
type etcdLease struct {
	e      *Etcd
	client *clientv3.Client
	id     clientv3.LeaseID
	term   millrace.Term

	ctx      context.Context
	end      context.CancelCauseFunc
	deadline atomic.Int64 // boot time in nanoseconds, at which the holder stops by itself
	renewals sync.WaitGroup
	parts    atomic.Int32 // that are not released
	refusals refusals
}

// etcdPart is the part of a lease that one stream has.
type etcdPart struct {
	*etcdLease
	keys     keys
	ctx      context.Context // ends with the lease, and when the part is released
	over     context.CancelCauseFunc
	released sync.Once
}

func newPart(l *etcdLease, k keys) *etcdPart {
	p := &etcdPart{etcdLease: l, keys: k}
	p.ctx, p.over = context.WithCancelCause(l.ctx)
	return p
}

// Term implements Lease.
func (p *etcdPart) Term() millrace.Term { return p.term }

// check returns an error if the part or its lease has ended.
func (p *etcdPart) check() error {
	if err := p.etcdLease.check(); err != nil {
		return err
	}
	if p.ctx.Err() != nil {
		return ended(p.ctx, p.term)
	}
	return nil
}

// Release implements Lease. The next holder need not wait if etcd answers within farewell.
func (p *etcdPart) Release() {
	p.released.Do(func() {
		p.over(lost(p.term, "it was released"))
		if p.parts.Add(-1) == 0 {
			p.release()
		}
	})
}

// hold starts the renewals. They end with the lease, and Release waits for them.
func (l *etcdLease) hold(ctx context.Context) {
	l.ctx, l.end = context.WithCancelCause(ctx)
	l.renewals.Go(l.renewAll)
}

// extend moves the deadline after a renewal that was sent at a boot time. The time of the answer does not count.
func (l *etcdLease) extend(sent int64) {
	l.deadline.Store(sent + int64(l.e.cfg.TTL-l.e.cfg.margin()))
}

// left returns the time to the holder's own deadline.
func (l *etcdLease) left() time.Duration {
	return time.Duration(l.deadline.Load() - l.e.cfg.Clock.Boottime())
}

// check ends the lease at its deadline, and returns an error if it has ended.
func (l *etcdLease) check() error {
	if l.left() <= 0 {
		l.end(lost(l.term, fmt.Sprintf("etcd has not renewed it for %v", l.e.cfg.TTL-l.e.cfg.margin())))
	}
	if l.ctx.Err() != nil {
		return ended(l.ctx, l.term)
	}
	return nil
}

// renewAll renews the lease until it ends.
func (l *etcdLease) renewAll() {
	r := &renewer{l: l}
	defer r.close()
	wait, told := l.e.cfg.every(), false
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.e.cfg.Clock.After(min(wait, max(0, l.left()))):
		}
		if l.check() != nil {
			return
		}
		switch err := r.renew(min(l.e.cfg.call(), l.left())); {
		case errors.Is(err, millrace.ErrFenced):
			l.end(err)
			return
		case err == nil:
			if wait = l.e.cfg.every(); told {
				told = false
				l.e.cfg.Frozen("")
			}
		case l.ctx.Err() == nil:
			if wait = retryDelay; !told {
				told = true
				l.e.cfg.Frozen(fmt.Sprintf("the lease of run %s ends in %v: %s", l.e.cfg.Run,
					l.left().Round(100*time.Millisecond), reason(err)))
			}
		}
	}
}

// renewer sends renewals. It keeps its stream: etcd checks a password for each new one.
type renewer struct {
	l      *etcdLease
	stream pb.Lease_LeaseKeepAliveClient // nil: none is open
	cancel context.CancelFunc            // of the stream
}

// renew extends the lease within a time, if etcd has it and its key is the holder's. The error is ErrFenced if it has
// not.
func (r *renewer) renew(within time.Duration) error {
	l := r.l
	sent := l.e.cfg.Clock.Boottime()
	if err := r.keepAlive(within); err != nil {
		r.close()
		return err
	}
	call, cancel := context.WithTimeout(l.ctx, within)
	defer cancel()
	got, err := l.client.Get(call, l.e.leader()) // linearizable
	if err != nil {
		return err
	}
	if len(got.Kvs) == 0 || millrace.Term(got.Kvs[0].ModRevision) != l.term {
		return lost(l.term, "its election key was removed from etcd")
	}
	l.extend(sent)
	return nil
}

// keepAlive renews the etcd lease. A stream to a member that does not answer is closed; the next one goes to another.
func (r *renewer) keepAlive(within time.Duration) error {
	l := r.l
	if r.stream == nil {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(l.ctx))
		r.cancel = cancel
		stop := time.AfterFunc(within, cancel)
		stream, err := pb.NewLeaseClient(l.client.ActiveConnection()).LeaseKeepAlive(ctx)
		if !stop.Stop() || err != nil {
			return errors.Join(err, ctx.Err())
		}
		r.stream = stream
	}
	late := time.AfterFunc(within, r.cancel)
	defer late.Stop()
	if err := r.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)}); err != nil {
		return err
	}
	kept, err := r.stream.Recv()
	switch {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound), err == nil && kept.TTL <= 0:
		return lost(l.term, "etcd has ended it")
	case err != nil:
		return err
	}
	return nil
}

// close closes the stream.
func (r *renewer) close() {
	if r.cancel != nil {
		r.cancel()
	}
	r.stream, r.cancel = nil, nil
}

// revoke removes the lease and its key from etcd. If etcd does not answer within farewell, they end with their time.
func (l *etcdLease) revoke() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_, _ = l.client.Revoke(ctx, l.id) // see above
}

// release ends the lease.
func (l *etcdLease) release() {
	l.end(lost(l.term, "it was released"))
	l.renewals.Wait()
	l.revoke()
	l.client.Close()
}

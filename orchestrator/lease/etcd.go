package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace"
)

// Etcd is the lease of a run in an etcd cluster. The holder owns the run's election key, which is attached to an etcd
// lease that the holder renews. The revision that created the key is the term. Every commit is a transaction that
// compares this revision, so a process that lost the key cannot change anything, even if it still believes to be the
// holder. One election decides for all streams of the run.
//
// The holder does not trust etcd's end of the lease: it stops by itself at its own deadline, which is earlier.
type Etcd struct {
	cfg   EtcdConfig
	keys  []keys  // of the streams, in the order of EtcdConfig.parts
	value string  // of the election key
	told  *string // the reason for the wait that was reported last; nil: none was
}

// NewEtcd returns a candidate with a fresh random identity. It starts nothing.
func NewEtcd(cfg EtcdConfig) (*Etcd, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	value, err := json.Marshal(Holder{Host: cfg.Host, Identity: newIdentity(), Line: cfg.Line, Address: cfg.Address})
	if err != nil {
		return nil, fmt.Errorf("encode the election key: %w", err)
	}
	e := &Etcd{cfg: cfg, value: string(value)}
	for _, p := range cfg.parts() {
		e.keys = append(e.keys, keysOf(cfg, p.Stream))
	}
	return e, nil
}

// Times of the election. A candidate looks at the key again after relist, in case a watch was lost without an error.
const (
	retryDelay = 200 * time.Millisecond
	relist     = 10 * time.Second
	farewell   = time.Second // the longest that Release waits for etcd
)

// Acquire implements Leaser, for a candidate that has its journal open. It fails if etcd's revisions do not exceed the
// journal's highest term. Else it is Elect.
func (e *Etcd) Acquire(ctx context.Context, above millrace.Term) (Lease, context.Context, error) {
	g, err := e.Elect(ctx)
	if err != nil {
		return nil, nil, err
	}
	return g.Acquire(ctx, above)
}

// Elect blocks until the lease is granted to this candidate. Writes to its journal have ended then (Standing.Stand).
// The lease ends with ctx. While etcd does not answer, Elect tries again. It fails if etcd refuses the user. A waiting
// candidate has nothing in etcd.
func (e *Etcd) Elect(ctx context.Context) (*Grant, error) {
	e.told = nil
	client, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	for {
		l, err := e.campaign(ctx, client)
		if err == nil {
			e.cfg.Frozen("")
			return e.grant(l), nil
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if ctx.Err() != nil || isFinal(err) {
			client.Close()
			return nil, fmt.Errorf("acquire the lease of run %s from etcd: %w", e.cfg.Run, e.cfg.refused(err))
		}
		e.tell("waiting for the lease of run " + e.cfg.Run + ": " + e.cfg.Explain(ctx, err))
		select {
		case <-ctx.Done():
		case <-e.cfg.Clock.After(retryDelay):
		}
	}
}

// tell reports once why the candidate waits; "" if it does not wait, which clears a reason of an earlier process.
func (e *Etcd) tell(why string) {
	if e.told == nil || *e.told != why {
		e.told = &why
		e.cfg.Frozen(why)
	}
}

// grant returns the grants of all streams.
func (e *Etcd) grant(l *etcdLease) *Grant {
	l.parts.Store(int32(len(e.keys)))
	var all []*Grant
	for _, k := range e.keys {
		p := newPart(l, k)
		all = append(all, NewGrant(p, p.ctx, e.cfg.Run))
	}
	all[0].further = map[millrace.Stream]*Grant{}
	for i, p := range e.cfg.Further {
		all[0].further[p.Stream] = all[i+1]
	}
	return all[0]
}

// campaign waits until the lease is free and this candidate may have it, and tries to get it. After an error, no key of
// the candidate stays in etcd beyond the lease's time: a transaction without an answer may have succeeded.
func (e *Etcd) campaign(ctx context.Context, client *clientv3.Client) (_ *etcdLease, err error) {
	if err := e.awaitFree(ctx, client); err != nil {
		return nil, err
	}
	listed, err := e.awaitListed(ctx, client)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, p := range e.cfg.parts() {
				p.Journal.Yield()
			}
		}
	}()
	for i, p := range e.cfg.parts() {
		switch id, err := p.Journal.Stand(); {
		case err != nil:
			return nil, err
		case !listed[i].admits(id):
			return nil, errAgain // it was replaced by a newer copy
		}
	}
	l := &etcdLease{e: e, client: client}
	l.extend(e.cfg.Clock.Boottime())
	call, cancel := context.WithTimeout(ctx, e.cfg.call())
	defer cancel()
	granted, err := client.Grant(call, int64(e.cfg.TTL/time.Second))
	if err != nil {
		return nil, err
	}
	l.id = granted.ID
	if err := e.claim(ctx, l, listed); err != nil {
		l.revoke()
		return nil, err
	}
	l.hold(ctx)
	return l, nil
}

// leader returns the election key.
func (e *Etcd) leader() string { return e.keys[0].leader }

// claim creates the election key, if the lists of journals have had no change since they were read.
func (e *Etcd) claim(ctx context.Context, l *etcdLease, listed []list) error {
	may := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(e.leader()), "=", 0)}
	for i, k := range e.keys {
		may = append(may, clientv3.Compare(clientv3.ModRevision(k.journals), "=", listed[i].revision))
	}
	call, cancel := context.WithTimeout(ctx, e.cfg.call())
	defer cancel()
	made, err := l.client.Txn(call).
		If(may...).
		Then(clientv3.OpPut(e.leader(), e.value, clientv3.WithLease(l.id))).
		Commit()
	if err != nil {
		return err
	}
	if !made.Succeeded {
		return errAgain // another candidate was faster, or the list has changed
	}
	l.term = millrace.Term(made.Header.Revision)
	if l.left() <= 0 {
		return errors.New("etcd answered too late")
	}
	return nil
}

// awaitFree blocks until no process has the lease. It ends the lease of a predecessor, and of a holder that has passed
// its own deadline. If such a process should live after all, it cannot commit any more.
func (e *Etcd) awaitFree(ctx context.Context, client *clientv3.Client) error {
	for {
		call, cancel := context.WithTimeout(ctx, e.cfg.call())
		got, err := client.Get(call, e.leader()) // linearizable
		cancel()
		if err != nil {
			return err
		}
		if len(got.Kvs) == 0 {
			return nil
		}
		if isPredecessor(got.Kvs[0].Value, e.cfg.Line) {
			if err := e.end(ctx, client, clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
				return err
			}
			continue
		}
		if e.cfg.StandsBy {
			e.tell("") // it may have lacked a listed journal, or the process before it a lease
		} else {
			e.tell(fmt.Sprintf("waiting for the lease of run %s: %s has it, since term %d", e.cfg.Run,
				describe(got.Kvs[0].Value), got.Kvs[0].CreateRevision))
		}
		if err := e.awaitChange(ctx, client, got.Header.Revision+1, clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
			return err
		}
	}
}

// awaitChange blocks until the election key or a list of journals may have changed since a revision. The caller looks
// again. This covers a watch that etcd ended, for example because the revision is compacted. It ends the lease of a
// holder that has passed its own deadline; 0: no process holds it.
func (e *Etcd) awaitChange(ctx context.Context, client *clientv3.Client, since int64, held clientv3.LeaseID) error {
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	again := e.cfg.Clock.After(relist)
	changed := make(chan error, len(e.keys)+2)
	await := func(key string) {
		watches.Go(func() {
			changed <- awaitEvent(client.Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithRev(since)))
		})
	}
	await(e.leader())
	for _, k := range e.keys {
		await(k.journals)
	}
	if held != 0 {
		watches.Go(func() {
			if err := e.awaitStopped(ctx, client, held); err != nil {
				changed <- err
				return
			}
			changed <- e.end(ctx, client, held)
		})
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-again:
		return nil
	case err := <-changed:
		return err
	}
}

// awaitEvent blocks until a watch has an event. It ends with the watch.
func awaitEvent(changes clientv3.WatchChan) error {
	for change := range changes {
		switch {
		case change.CompactRevision > 0 || len(change.Events) > 0:
			return nil
		case change.Err() != nil:
			return change.Err()
		}
	}
	return errors.New("etcd ended a watch")
}

var _ Leaser = (*Etcd)(nil)

package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace"
	"millrace/orchestrator/lease"
)

// Times of a registration. It only shows others which hosts are there: no decision that must be exact depends on it.
const (
	ttl        = 10 * time.Second // of a registration after a host died
	renewEvery = ttl / 4
	retryDelay = 200 * time.Millisecond
	deadFor    = ttl + 5*time.Second // a host that stays registered for longer is not dead
)

// Membership is the registration of a host. Run keeps it.
type Membership struct {
	*Client
	mu    sync.Mutex // guards the others
	host  Host
	lease clientv3.LeaseID
}

// Join registers a host, after it has agreed with the hosts that are there. While etcd does not answer, it waits, and
// calls cfg.Frozen with the reason. If the host does not agree with another one, or that one has its ranks, Join waits
// for some seconds: the other one may be dead. Then the error is ErrMismatch. The caller calls Leave.
func Join(ctx context.Context, cfg lease.EtcdConfig, host Host) (*Membership, error) {
	if err := host.Validate(); err != nil {
		return nil, err
	}
	client, err := Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	m := &Membership{Client: client, host: host}
	if err := m.join(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return m, nil
}

// Host returns the host as it is registered.
func (m *Membership) Host() Host {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.host
}

// Reshape registers other ranks for this host, in a run of another world. axes is empty if the axes of parallelism are
// as in the mixture file. While etcd does not answer, Reshape tries again until ctx ends. A registration without an
// answer may have succeeded; the next one then replaces it. The error is ErrMismatch if another host has one of the
// ranks.
func (m *Membership) Reshape(ctx context.Context, first, ranks, world int, axes string) error {
	for {
		err := m.tryReshape(ctx, first, ranks, world, axes)
		if err == nil || lease.IsFinal(err) || errors.Is(err, millrace.ErrInvalid) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("register other ranks: %w", err)
		case <-m.cfg.Clock.After(retryDelay):
		}
	}
}

// tryReshape registers other ranks once.
func (m *Membership) tryReshape(ctx context.Context, first, ranks, world int, axes string) error {
	m.mu.Lock()
	next, was := m.host, m.lease
	m.mu.Unlock()
	others, revision, err := m.list(ctx)
	if err != nil {
		return err
	}
	next = next.reshaped(others, first, ranks, world, axes)
	if err := next.Validate(); err != nil {
		return err
	}
	if _, err := next.agree(others); err != nil {
		return fmt.Errorf("register %s: %w", next, err)
	}
	if err := m.put(ctx, next, revision, was); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host = next
	return nil
}

// put writes a host, unless another one has come or changed since a revision.
func (m *Membership) put(ctx context.Context, h Host, revision int64, id clientv3.LeaseID) error {
	value, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode a host: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unchanged := clientv3.Compare(clientv3.ModRevision(prefix(m.cfg.Run)), "<", revision+1).WithPrefix()
	made, err := m.etcd.Txn(ctx).If(unchanged).
		Then(clientv3.OpPut(h.key(m.cfg.Run), string(value), clientv3.WithLease(id))).Commit()
	if err == nil && !made.Succeeded {
		return errRaced
	}
	return err
}

// join registers the host, or finds that it never can.
func (m *Membership) join(ctx context.Context) error {
	told := ""
	tell := func(why string) {
		if why != told && m.cfg.Frozen != nil {
			m.cfg.Frozen(why)
		}
		told = why
	}
	clock := m.cfg.Clock
	var since time.Time // of the conflict
	for {
		err := m.try(ctx)
		var with *conflict
		switch {
		case err == nil:
			tell("")
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &with):
			if since.IsZero() {
				since = clock.Now()
			}
			if clock.Now().Sub(since) > deadFor {
				return fmt.Errorf("register %s: %w", m.Host(), err)
			}
			tell(fmt.Sprintf("waiting to register %s, for %v at most: if the other host is dead, its registration "+
				"ends by then; otherwise: %v", m.Host(), deadFor, err))
		case lease.IsFinal(err):
			return fmt.Errorf("register %s in etcd: %w", m.Host(), lease.Refused(m.cfg, err))
		case !errors.Is(err, errRaced):
			tell(fmt.Sprintf("waiting to register %s: %s", m.Host(), m.cfg.Explain(ctx, err)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clock.After(retryDelay):
		}
	}
}

// errRaced: another host has registered at the same time.
var errRaced = errors.New("another host registered at the same time")

// try registers the host once. The transaction fails if a host has come since the others were read.
func (m *Membership) try(ctx context.Context) error {
	others, revision, err := m.list(ctx)
	if err != nil {
		return err
	}
	agreed, err := m.Host().agree(others)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	granted, err := m.etcd.Grant(call, int64(ttl/time.Second))
	if err != nil {
		return err
	}
	if err := m.put(ctx, agreed, revision, granted.ID); err != nil {
		m.revoke(granted.ID)
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host, m.lease = agreed, granted.ID
	return nil
}

// Run keeps the registration until ctx ends, and returns nil then. It makes a registration again that etcd has ended,
// for example while this host was cut off. The error says that the run has gone on without this host, or that another
// one has its ranks.
func (m *Membership) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.cfg.Clock.After(renewEvery):
		}
		call, cancel := context.WithTimeout(ctx, patience)
		_, err := m.etcd.KeepAliveOnce(call, m.registered())
		cancel()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			if err := m.join(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// Leave ends the registration, so that others need not wait for its end.
func (m *Membership) Leave() {
	m.revoke(m.registered())
	m.Close()
}

// registered returns the etcd lease of the registration.
func (m *Membership) registered() clientv3.LeaseID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease
}

// revoke ends an etcd lease. If etcd does not answer, the lease ends with its time.
func (m *Membership) revoke(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = m.etcd.Revoke(ctx, id) // see above
}

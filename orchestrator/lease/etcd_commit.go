package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"millrace"
)

// etcd keeps the digests of the newest steps. A run is never further ahead than the ledger of the journal, which keeps
// all. An etcd transaction takes 128 operations at most.
const (
	keptSteps  = 4096 // more than any runway
	dropEvery  = 256  // steps between two removals of old keys
	mostAtOnce = 64   // plans of one transaction
)

// Commit implements Lease. It repeats a transaction without an answer until the lease ends: a second one finds the
// digests of the first.
func (p *etcdPart) Commit(ctx context.Context, plans []Plan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	for rest := plans; ; {
		n := min(len(rest), mostAtOnce)
		if err := p.record(ctx, rest[:n]); err != nil {
			return fmt.Errorf("commit plans to etcd: %w", err)
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
	}
}

// record records the digests of some plans, all or none.
func (p *etcdPart) record(ctx context.Context, plans []Plan) error {
	return p.persist(ctx, "records no plans", func() (again bool, err error) {
		answer, err := p.guarded(ctx, plans)
		if err == nil && !answer.Succeeded {
			plans, err = p.missing(plans, answer)
			again = err == nil && len(plans) > 0
		}
		return again, err
	})
}

// persist repeats a transaction until its answer is certain, the lease ends, or ctx does. If etcd has no room, people
// hear that etcd refuses it.
func (p *etcdPart) persist(ctx context.Context, refuses string, try func() (again bool, err error)) error {
	told := false
	defer func() {
		if told {
			p.refusals.end(p.e.cfg.Frozen)
		}
	}()
	for {
		if err := p.check(); err != nil {
			return err
		}
		again, err := try()
		if again {
			continue
		}
		switch {
		case err == nil, p.left() <= 0, p.ctx.Err() != nil:
			// A holder acts only before its deadline, and etcd's answer may have come after it.
			return p.check()
		case errors.Is(err, millrace.ErrFenced):
			p.end(err)
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case isFinal(err):
			return err
		case code(err) == codes.ResourceExhausted && !told: // renewals continue: only a commit needs room
			told = true
			p.refusals.begin(p.e.cfg.Frozen, fmt.Sprintf("etcd %s of run %s: %s", refuses, p.e.cfg.Run, reason(err)))
		}
		select {
		case <-ctx.Done():
		case <-p.e.cfg.Clock.After(retryDelay):
		}
	}
}

// refusals are the writes of all streams that etcd refuses for now. The start of the first and the end of the last are
// reported.
type refusals struct {
	mu    sync.Mutex
	count int
}

func (r *refusals) begin(frozen func(string), why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count++; r.count == 1 {
		frozen(why)
	}
}

func (r *refusals) end(frozen func(string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count--; r.count == 0 {
		frozen("")
	}
}

// guarded sends the transaction of a commit. It succeeds if the term holds and none of the steps has digests. Else it
// returns the election key and the digests that are there.
func (p *etcdPart) guarded(ctx context.Context, plans []Plan) (*clientv3.TxnResponse, error) {
	keys := p.keys
	holds := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(keys.leader), "=", int64(p.term))}
	var write []clientv3.Op
	read := []clientv3.Op{clientv3.OpGet(keys.leader)}
	for _, plan := range plans {
		key := keys.plan(plan.Attempt, plan.Step)
		holds = append(holds, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		write = append(write, clientv3.OpPut(key, digests(plan)))
		read = append(read, clientv3.OpGet(key))
	}
	if slices.ContainsFunc(plans, func(p Plan) bool { return p.Step%dropEvery == 0 }) {
		first := slices.MinFunc(plans, func(p, q Plan) int {
			return cmp.Or(cmp.Compare(p.Attempt, q.Attempt), cmp.Compare(p.Step, q.Step))
		})
		kept := keys.plan(first.Attempt, first.Step-min(first.Step, keptSteps))
		write = append(write, clientv3.OpDelete(keys.plans, clientv3.WithRange(kept)))
	}
	call, cancel := context.WithTimeout(ctx, min(p.e.cfg.call(), p.left()))
	defer cancel()
	return p.client.Txn(call).If(holds...).Then(write...).Else(read...).Commit()
}

// missing returns the plans without digests in etcd, after a transaction that did not succeed.
func (p *etcdPart) missing(plans []Plan, answer *clientv3.TxnResponse) (out []Plan, err error) {
	leader := answer.Responses[0].GetResponseRange().Kvs
	if len(leader) == 0 || millrace.Term(leader[0].ModRevision) != p.term {
		return nil, lost(p.term, "another process may have the next one")
	}
	for i, plan := range plans {
		found := answer.Responses[i+1].GetResponseRange().Kvs
		switch {
		case len(found) == 0:
			out = append(out, plan)
		case string(found[0].Value) != digests(plan):
			return nil, millrace.Errorf(millrace.ErrMismatch,
				"step %d of attempt %d has digests %s since revision %d, and its plan has %s: give each run directory "+
					"its own name in the cluster file, and run one version of millrace",
				plan.Step, plan.Attempt, found[0].Value, found[0].CreateRevision, digests(plan))
		}
	}
	return out, nil
}

// digests is the value of a plan's key.
func digests(p Plan) string { return p.Content.String() + " " + p.Placement.String() }

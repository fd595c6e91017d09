package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace"
)

// List implements Keeper.
func (l *etcdLease) List(ctx context.Context, journals []Journal) error {
	value, err := json.Marshal(journals)
	if err != nil {
		return fmt.Errorf("encode the list of journals: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	err = l.persist(ctx, "lists no journals", func() (again bool, err error) {
		call, cancel := context.WithTimeout(ctx, min(l.e.cfg.call(), l.left()))
		defer cancel()
		answer, err := l.client.Txn(call).
			If(clientv3.Compare(clientv3.ModRevision(l.e.keys.leader), "=", int64(l.term))).
			Then(clientv3.OpPut(l.e.keys.journals, string(value))).
			Commit()
		if err == nil && !answer.Succeeded {
			err = lost(l.term, "another process may have the next one")
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("list the journals in etcd: %w", err)
	}
	return nil
}

var _ Keeper = (*etcdLease)(nil)

// awaitListed blocks until the candidate's journal may be elected, and returns the list that says so. errTaken: the
// election is over before.
func (e *Etcd) awaitListed(ctx context.Context, client *clientv3.Client) (list, error) {
	call, cancel := context.WithTimeout(ctx, e.cfg.call())
	got, err := client.Get(call, e.keys.journals) // linearizable
	cancel()
	if err != nil {
		return list{}, err
	}
	var now list
	if len(got.Kvs) > 0 {
		now.revision = got.Kvs[0].ModRevision
		if err := json.Unmarshal(got.Kvs[0].Value, &now.journals); err != nil {
			return now, millrace.Errorf(millrace.ErrInvalid, "read the list of journals %s: %w", e.keys.journals, err)
		}
	}
	id, err := e.cfg.Journal.ID()
	if err != nil || now.admits(id) {
		return now, err
	}
	e.tell(fmt.Sprintf("waiting for the lease of run %s: this host's journal lacks steps that %s has", e.cfg.Run,
		now.hosts()))
	if err := e.awaitChange(ctx, client, got.Header.Revision+1); err != nil {
		return now, err
	}
	return now, errAgain
}

// errAgain: the election key or the list has changed.
var errAgain = errors.New("the election begins again")

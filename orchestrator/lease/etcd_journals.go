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
func (p *etcdPart) List(ctx context.Context, journals []Journal) error {
	value, err := json.Marshal(journals)
	if err != nil {
		return fmt.Errorf("encode the list of journals: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	err = p.persist(ctx, "lists no journals", func() (again bool, err error) {
		call, cancel := context.WithTimeout(ctx, min(p.e.cfg.call(), p.left()))
		defer cancel()
		answer, err := p.client.Txn(call).
			If(clientv3.Compare(clientv3.ModRevision(p.keys.leader), "=", int64(p.term))).
			Then(clientv3.OpPut(p.keys.journals, string(value))).
			Commit()
		if err == nil && !answer.Succeeded {
			err = lost(p.term, "another process may have the next one")
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("list the journals in etcd: %w", err)
	}
	return nil
}

var _ Keeper = (*etcdPart)(nil)

// awaitListed blocks until the candidate's journals may be elected, and returns the lists that say so, one a stream.
// errAgain: the election or a list has changed.
func (e *Etcd) awaitListed(ctx context.Context, client *clientv3.Client) ([]list, error) {
	var all []list
	for i, p := range e.cfg.parts() {
		now, seen, err := e.listed(ctx, client, e.keys[i].journals)
		if err != nil {
			return nil, err
		}
		id, err := p.Journal.ID()
		if err != nil {
			return nil, err
		}
		if !now.admits(id) {
			of := ""
			if i > 0 {
				of = " of stream " + string(p.Stream)
			}
			e.tell(fmt.Sprintf("waiting for the lease of run %s: this host's journal%s lacks steps that %s: start "+
				"`millrace up` there with its run directory, or give a new run another name in the cluster file",
				e.cfg.Run, of, now.holders()))
			if err := e.awaitChange(ctx, client, seen+1, 0); err != nil {
				return nil, err
			}
			return nil, errAgain
		}
		all = append(all, now)
	}
	return all, nil
}

// listed reads a list of journals, and returns the revision at which it was read.
func (e *Etcd) listed(ctx context.Context, client *clientv3.Client, key string) (now list, seen int64, err error) {
	call, cancel := context.WithTimeout(ctx, e.cfg.call())
	defer cancel()
	got, err := client.Get(call, key) // linearizable
	if err != nil {
		return now, 0, err
	}
	if len(got.Kvs) > 0 {
		now.revision = got.Kvs[0].ModRevision
		if err := json.Unmarshal(got.Kvs[0].Value, &now.journals); err != nil {
			return now, 0, millrace.Errorf(millrace.ErrInvalid, "read the list of journals %s: %w", key, err)
		}
	}
	return now, got.Header.Revision, nil
}

// errAgain: the election key or the list has changed.
var errAgain = errors.New("the election begins again")

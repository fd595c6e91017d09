package mailbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/placer"
)

// Engine names the engine in errors.
const Engine = "Ray"

// patience bounds one call to etcd.
const patience = 2 * time.Second

// Placer writes goals for the engine. Safe for concurrent use.
type Placer struct {
	etcd *clientv3.Client
	keys keys
	own  []placer.Instance
	term func() millrace.Term
}

var _ placer.Placer = (*Placer)(nil)

// New returns the placer of the process that plans a run in a term. own are the processes that run beside the engine,
// such as the loaders of each `millrace up`: goals and reports count them, and they stay. The caller owns the client.
func New(etcd *clientv3.Client, cfg lease.EtcdConfig, own []placer.Instance, term func() millrace.Term) *Placer {
	return &Placer{etcd: etcd, keys: keysOf(cfg), own: own, term: term}
}

// goal is the goal of the engine as etcd has it.
type goal struct {
	Roles []order `json:"roles"` // by role
}

// order is a role of a goal. The names of its processes count from First.
type order struct {
	placer.Wanted
	First int `json:"first,omitempty"`
}

// keys are the keys of a run.
type keys struct{ leader, desired, observed string }

func keysOf(cfg lease.EtcdConfig) keys {
	prefix := "millrace/" + cfg.Run + "/"
	return keys{leader: lease.LeaderKey(cfg), desired: prefix + "desired", observed: prefix + "observed"}
}

// Apply implements placer.Placer. The error is ErrFenced if another process plans the run.
func (p *Placer) Apply(ctx context.Context, desired placer.Desired) error {
	if err := refusal(desired); err != nil {
		return err
	}
	for {
		now, revision, err := readGoal(ctx, p.etcd, p.keys)
		if err != nil {
			return failed("read the goal in etcd", err)
		}
		next := p.merged(now, desired)
		if revision > 0 && slices.Equal(next.Roles, now.Roles) {
			return nil
		}
		put, err := p.put(ctx, next, revision)
		if put || err != nil {
			return err
		}
	}
}

// put replaces the goal that was read at a revision. It returns false if another call has changed the goal since.
func (p *Placer) put(ctx context.Context, next goal, revision int64) (bool, error) {
	value, err := json.Marshal(next)
	if err != nil {
		return false, fmt.Errorf("encode a goal: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := p.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(p.keys.leader), "=", int64(p.term())),
			clientv3.Compare(clientv3.ModRevision(p.keys.desired), "=", revision)).
		Then(clientv3.OpPut(p.keys.desired, string(value))).
		Else(clientv3.OpGet(p.keys.leader)).
		Commit()
	if err != nil {
		return false, failed("write the goal to etcd", err)
	}
	if answer.Succeeded {
		return true, nil
	}
	leader := answer.Responses[0].GetResponseRange().Kvs
	if len(leader) == 0 || millrace.Term(leader[0].ModRevision) != p.term() {
		return false, millrace.Errorf(millrace.ErrFenced, "%s: write the goal to etcd: another process plans the run "+
			"since term %d: its goal holds", Engine, p.term())
	}
	return false, nil
}

// Observe implements placer.Placer.
func (p *Placer) Observe(ctx context.Context) ([]placer.Instance, error) {
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := p.etcd.Get(call, p.keys.observed)
	var out []placer.Instance
	if err == nil && len(got.Kvs) > 0 { // else the engine has not begun
		err = json.Unmarshal(got.Kvs[0].Value, &out)
	}
	if err != nil {
		return nil, failed("read the processes in etcd", err)
	}
	return append(out, p.own...), nil
}

// failed is an error of a call. It keeps the end of the caller's context.
func failed(what string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %s: %w", Engine, what, err)
	}
	return fmt.Errorf("%s: %s: %s: see the members of etcd, and try again", Engine, what, lease.Reason(err))
}

// readGoal returns the goal and the revision of its newest change; 0: there is none.
func readGoal(ctx context.Context, etcd *clientv3.Client, k keys) (out goal, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := etcd.Get(ctx, k.desired) // linearizable
	if err != nil || len(got.Kvs) == 0 {
		return out, 0, err
	}
	err = json.Unmarshal(got.Kvs[0].Value, &out)
	return out, got.Kvs[0].ModRevision, err
}

// merged returns a goal in which some roles are replaced.
func (p *Placer) merged(now goal, with placer.Desired) goal {
	var out []order
	for _, w := range with.Roles {
		own := 0
		for _, i := range p.own {
			if i.Role == w.Role {
				own++
			}
		}
		w.Count = max(0, w.Count-own)
		out = append(out, order{w, own})
	}
	for _, o := range now.Roles {
		if !slices.ContainsFunc(out, func(w order) bool { return w.Role == o.Role }) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b order) int { return cmp.Compare(a.Role, b.Role) })
	return goal{out}
}

// refusal says why the engine cannot have a goal; nil: it can.
func refusal(desired placer.Desired) error {
	seen := map[string]bool{}
	for _, w := range desired.Roles {
		switch {
		case w.Role != "loader":
			return refuse(w.Role, "it runs on the nodes of the trainers alone", "ask for the role loader")
		case w.Count < 0:
			return refuse(w.Role, fmt.Sprintf("%d processes are no number", w.Count), "ask for 0 or more")
		case seen[w.Role]:
			return refuse(w.Role, "the goal has it twice", "name each role once")
		case w.Apart != "":
			return refuse(w.Role, "it keeps no processes apart", "ask for them without apart")
		}
		seen[w.Role] = true
	}
	return nil
}

func refuse(role, why, cure string) error {
	return millrace.Errorf(millrace.ErrInvalid, "%s cannot place the role %s: %s: %s", Engine, role, why, cure)
}

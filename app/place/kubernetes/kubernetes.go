// Package kubernetes places the processes of a run on Kubernetes: each role is a StatefulSet, and the run chooses its
// number of replicas. Everything else is in the manifests of deploy/kubernetes.
//
//	kubernetes.go  Placer: goals → replicas; pods → instances
//	set.go         statefulSet: the resources of its pods, and whether they are enough
//	quantity.go    numbers of CPUs and bytes, as Kubernetes writes them
//	api.go         api: requests to the API server, tried again
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"millrace/orchestrator/placer"
)

// Config describes the API server and the StatefulSets of a run. Without a Server, all but Sets are those of the pod in
// which this process runs.
type Config struct {
	Server    string            // https://host:port
	Namespace string            // of the StatefulSets
	Token     string            // file with the bearer token, read for each request because the kubelet renews it
	CA        string            // PEM file with the authorities of the server's certificate, read for each request
	Sets      map[string]string // name of the StatefulSet of each role
}

// Placer sets the replicas of StatefulSets. Its user needs the rights of the Role in deploy/kubernetes/placer.yaml and
// no others. Safe for concurrent use.
type Placer struct {
	namespace string
	sets      map[string]string
	api       *api
}

var _ placer.Placer = (*Placer)(nil)

// New returns a placer. It connects to nothing yet.
func New(c Config) (*Placer, error) {
	if c.Server == "" {
		var err error
		if c, err = inPod(c); err != nil {
			return nil, fmt.Errorf("kubernetes: %w", err)
		}
	}
	return &Placer{namespace: c.Namespace, sets: maps.Clone(c.Sets), api: newAPI(c.Server, c.Token, c.CA)}, nil
}

// change is a new number of replicas.
type change struct {
	role, set string
	from, to  int
}

// Apply sets the replicas of the StatefulSets. CPU, memory and Apart cannot be changed by the user of a Placer; so a
// goal is refused if the pods of a StatefulSet do not get them already. Near is a wish, and the manifests decide.
func (p *Placer) Apply(ctx context.Context, desired placer.Desired) error {
	var changes []change
	for i, w := range desired.Roles {
		c, err := p.plan(ctx, w, desired.Roles[:i])
		if err != nil {
			return fmt.Errorf("kubernetes: role %s: %w", w.Role, err)
		}
		if c.from != c.to {
			changes = append(changes, c)
		}
	}
	for i, c := range changes {
		if err := p.scale(ctx, c.set, c.to); err != nil {
			err = fmt.Errorf("kubernetes: role %s: %w", c.role, err)
			return errors.Join(p.undo(ctx, changes[:i]), err)
		}
	}
	return nil
}

// plan returns the change that a role needs, or why the goal cannot be reached.
func (p *Placer) plan(ctx context.Context, w placer.Wanted, earlier []placer.Wanted) (change, error) {
	switch {
	case w.Count < 0:
		return change{}, fmt.Errorf("%d processes were wanted: want none or more", w.Count)
	case slices.ContainsFunc(earlier, func(e placer.Wanted) bool { return e.Role == w.Role }):
		return change{}, errors.New("the goal lists it twice: list each role once")
	}
	set, err := p.read(ctx, w.Role)
	if err != nil {
		return change{}, err
	}
	if err := set.gives(w); err != nil {
		return change{}, err
	}
	if w.Apart != "" {
		other, err := p.read(ctx, w.Apart)
		if err != nil {
			return change{}, err
		}
		if !set.isApartFrom(other) {
			return change{}, fmt.Errorf("pods of StatefulSet %s may share a node with pods of %s: give its template a "+
				"required podAntiAffinity with topologyKey %s", set.Metadata.Name, other.Metadata.Name, hostname)
		}
	}
	return change{role: w.Role, set: set.Metadata.Name, from: set.replicas(), to: w.Count}, nil
}

// undo restores the goal that held before, also if the caller has no time left.
func (p *Placer) undo(ctx context.Context, changes []change) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
	defer cancel()
	var errs []error
	for _, c := range changes {
		if err := p.scale(ctx, c.set, c.from); err != nil {
			errs = append(errs, fmt.Errorf("restore the %d replicas of StatefulSet %s: %w", c.from, c.set, err))
		}
	}
	return errors.Join(errs...)
}

func (p *Placer) scale(ctx context.Context, set string, count int) error {
	patch := []byte(`{"spec":{"replicas":` + strconv.Itoa(count) + `}}`)
	return p.api.patch(ctx, p.path("apps/v1", "statefulsets", set, "scale"), patch)
}

func (p *Placer) read(ctx context.Context, role string) (*statefulSet, error) {
	name, ok := p.sets[role]
	if !ok {
		return nil, fmt.Errorf("it has no StatefulSet: ask for %s",
			strings.Join(slices.Sorted(maps.Keys(p.sets)), " or "))
	}
	set := &statefulSet{}
	return set, p.api.get(ctx, p.path("apps/v1", "statefulsets", name), set)
}

// Observe lists the pods of the StatefulSets.
func (p *Placer) Observe(ctx context.Context) ([]placer.Instance, error) {
	var out []placer.Instance
	for _, role := range slices.Sorted(maps.Keys(p.sets)) {
		pods, err := p.pods(ctx, role)
		if err != nil {
			return nil, fmt.Errorf("kubernetes: role %s: %w", role, err)
		}
		for _, pod := range pods {
			out = append(out, placer.Instance{
				Role: role, Name: pod.Metadata.Name, Host: pod.Spec.NodeName, State: pod.state(),
			})
		}
	}
	return out, nil
}

// pods returns the pods of a role in the order of their ordinals.
func (p *Placer) pods(ctx context.Context, role string) ([]pod, error) {
	set, err := p.read(ctx, role)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []pod }
	selector := "?labelSelector=" + url.QueryEscape(set.Spec.Selector.text())
	if err := p.api.get(ctx, p.path("v1", "pods")+selector, &list); err != nil {
		return nil, err
	}
	list.Items = slices.DeleteFunc(list.Items, func(pod pod) bool { return !pod.isOf(set.Metadata.Name) })
	slices.SortFunc(list.Items, func(a, b pod) int {
		return cmp.Or(cmp.Compare(len(a.Metadata.Name), len(b.Metadata.Name)),
			cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return list.Items, nil
}

// path returns the path of an object of the namespace, or of all objects of a kind.
func (p *Placer) path(group string, parts ...string) string {
	root := "/apis/"
	if !strings.Contains(group, "/") {
		root = "/api/"
	}
	return root + group + "/namespaces/" + p.namespace + "/" + strings.Join(parts, "/")
}

// pod is the part of a Pod that describes an instance.
type pod struct {
	Metadata struct {
		Name              string
		DeletionTimestamp string
		OwnerReferences   []struct{ Kind, Name string }
	}
	Spec   struct{ NodeName string }
	Status struct {
		Phase      string
		Conditions []struct{ Type, Status string }
	}
}

func (p *pod) isOf(set string) bool {
	for _, owner := range p.Metadata.OwnerReferences {
		if owner.Kind == "StatefulSet" && owner.Name == set {
			return true
		}
	}
	return false
}

// state returns Running for a pod that is ready. A pod whose containers crash again and again is not.
func (p *pod) state() placer.State {
	if p.Metadata.DeletionTimestamp != "" {
		return placer.Ending
	}
	for _, c := range p.Status.Conditions {
		if p.Status.Phase == "Running" && c.Type == "Ready" && c.Status == "True" {
			return placer.Running
		}
	}
	return placer.Pending
}

package roles

import (
	"context"

	"millrace"
	"millrace/app/place/kubernetes"
	"millrace/app/place/local"
	"millrace/app/place/mailbox"
	"millrace/app/setup"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/placer"
)

// The engines that an orchestrator may ask for loaders.
const (
	Supervisor = "supervisor" // of the `up` that runs the orchestrator
	Kubernetes = "kubernetes" // the manifests of deploy/kubernetes
	Ray        = "ray"        // the actors of millrace.ray, beside the loaders of each `up`
)

// placer returns the way to an engine. nil: the number of loaders is not the orchestrator's.
func (r *role) placer(ctx context.Context, engine string, p *planning) (placer.Placer, error) {
	switch engine {
	case "":
		return nil, nil
	case Supervisor:
		return local.New(r.life, r.RunDir, r.site.Name), nil
	case Kubernetes:
		p, err := kubernetes.New(kubernetes.Config{Sets: map[string]string{LoaderRole: LoaderRole}})
		if err != nil { // an interface with a nil pointer is not nil
			return nil, err
		}
		return p, nil
	case Ray:
		return r.mailbox(ctx, p)
	}
	return nil, millrace.Errorf(millrace.ErrInvalid, "ask the engine %q for loaders: want %s, %s or %s", engine,
		Supervisor, Kubernetes, Ray)
}

// mailbox returns the way to Ray. The planning closes its connection.
func (r *role) mailbox(ctx context.Context, p *planning) (placer.Placer, error) {
	if !r.isSpread() {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"ask Ray for loaders: the run has one host: start its up without --placer")
	}
	cfg := r.network.File.Etcd()
	etcd, err := lease.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p.etcd = etcd
	loaders := r.loadersOfHosts(p.stream.of.Part.Fleet)
	return mailbox.New(etcd, cfg, loaders, func() millrace.Term { return p.Term() }), nil
}

// loadersOfHosts returns the loaders that each `up` of the run starts.
func (r *role) loadersOfHosts(f setup.Fleet) (out []placer.Instance) {
	for _, host := range (setup.Place{Ranks: r.Ranks, World: r.World}).Others() {
		for _, name := range host.Loaders(f) {
			out = append(out, placer.Instance{Role: LoaderRole, Name: name, State: placer.Running})
		}
	}
	return out
}

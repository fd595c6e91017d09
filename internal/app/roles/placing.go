package roles

import (
	"millrace"
	"millrace/internal/app/place/kubernetes"
	"millrace/internal/app/place/local"
	"millrace/orchestrator/placer"
)

// The engines that an orchestrator may ask for loaders.
const (
	Supervisor = "supervisor" // of the `up` that runs the orchestrator
	Kubernetes = "kubernetes" // the manifests of deploy/kubernetes
)

// placer returns the way to an engine. nil: the number of loaders is not the orchestrator's.
func (r *role) placer(engine string) (placer.Placer, error) {
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
	}
	return nil, millrace.Errorf(millrace.ErrInvalid, "ask the engine %q for loaders: want %s or %s", engine, Supervisor,
		Kubernetes)
}

// Package placer is the way from a run to the engine that starts, restarts and scales its processes: the supervisor of
// one host, Ray, or Kubernetes. Millrace decides which processes the run wants. It starts none on another host.
//
// orchestrator/placer/placertest is the contract suite of all implementations.
package placer

import "context"

// Desired lists the processes that a run wants. A role that it does not list stays as it is.
type Desired struct {
	Roles []Wanted `json:"roles"`
}

// Wanted is the number of processes of one role, and the needs of each.
type Wanted struct {
	Role   string `json:"role"` // "loader"
	Count  int    `json:"count"`
	CPU    int    `json:"cpu_millis,omitempty"`   // thousandths of a core for each; 0: the engine's default
	Memory int64  `json:"memory_bytes,omitempty"` // for each; 0: the engine's default
	Near   string `json:"near,omitempty"`         // prefer hosts with a process of this role
	Apart  string `json:"apart,omitempty"`        // never on a host with another process of this role
}

// State is the state of a process as the engine knows it.
type State string

// The states.
const (
	Pending State = "pending" // the engine looks for a host, or starts it
	Running State = "running"
	Ending  State = "ending" // it was asked to leave, and hands over
)

// Instance is one process of a role.
type Instance struct {
	Role  string `json:"role"`
	Name  string `json:"name"` // unique in the run; it ends with the process's ordinal in its role, such as loader-3
	Host  string `json:"host,omitempty"`
	State State  `json:"state"`
}

// Placer asks an engine for the processes that a run wants, and reports those that exist. Safe for concurrent use.
type Placer interface {
	// Apply makes desired the engine's goal. It returns when the engine has accepted the goal, and does not wait for
	// the processes. A second call with the same goal changes nothing. An engine that ends a process asks it to leave
	// first, and begins with the highest ordinals. The error names the engine, the role and the cure; then the earlier
	// goal holds.
	Apply(ctx context.Context, desired Desired) error
	// Observe returns the processes that exist, by role and name. The engine restarts a process that died until Apply
	// no longer wants it.
	Observe(ctx context.Context) ([]Instance, error)
}

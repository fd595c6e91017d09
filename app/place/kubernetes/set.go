package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/orchestrator/placer"
)

// hostname is the label of nodes by which pods stay on different ones.
const hostname = "kubernetes.io/hostname"

// statefulSet is the part of a StatefulSet that describes the resources of its pods.
type statefulSet struct {
	Metadata struct{ Name string }
	Spec     struct {
		Replicas *int
		Selector selector
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []struct {
					Name      string
					Resources struct{ Requests, Limits map[string]string }
				}
				Affinity struct {
					PodAntiAffinity struct {
						Required []struct {
							LabelSelector selector
							TopologyKey   string
						} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
					}
				}
			}
		}
	}
}

// selector is a label selector. One with expressions matches nothing here.
type selector struct {
	MatchLabels      map[string]string
	MatchExpressions []any
}

// text returns the selector as a parameter of a list.
func (s selector) text() string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		out = append(out, key+"="+s.MatchLabels[key])
	}
	return strings.Join(out, ",")
}

// matches reports whether the selector surely selects pods with these labels.
func (s selector) matches(labels map[string]string) bool {
	for key, value := range s.MatchLabels {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return len(s.MatchLabels) > 0 && len(s.MatchExpressions) == 0
}

// replicas returns the wanted number of pods. Kubernetes takes a missing number as 1.
func (s *statefulSet) replicas() int {
	if s.Spec.Replicas == nil {
		return 1
	}
	return *s.Spec.Replicas
}

// isApartFrom reports whether no pod of the set can be scheduled to a node with a pod of other.
func (s *statefulSet) isApartFrom(other *statefulSet) bool {
	for _, term := range s.Spec.Template.Spec.Affinity.PodAntiAffinity.Required {
		if term.TopologyKey == hostname && term.LabelSelector.matches(other.Spec.Template.Metadata.Labels) {
			return true
		}
	}
	return false
}

// gives returns an error if a pod of the set gets less than a process needs.
func (s *statefulSet) gives(w placer.Wanted) error {
	cpu, err := s.requested("cpu", milli)
	if err != nil {
		return err
	}
	memory, err := s.requested("memory", 1)
	if err != nil {
		return err
	}
	if w.CPU > 0 && cpu < int64(w.CPU) {
		return fmt.Errorf("the pods of StatefulSet %s request %d thousandths of a CPU, and the run wants %d: raise "+
			"resources.requests.cpu to %dm", s.Metadata.Name, cpu, w.CPU, w.CPU)
	}
	if memory < w.Memory {
		return fmt.Errorf("the pods of StatefulSet %s request %d bytes of memory, and the run wants %d: raise "+
			"resources.requests.memory to %d", s.Metadata.Name, memory, w.Memory, w.Memory)
	}
	return nil
}

// requested sums what all containers of a pod request, in parts of the unit. A limit counts without a request, as in
// the scheduler.
func (s *statefulSet) requested(resource string, parts int64) (int64, error) {
	var sum int64
	for _, c := range s.Spec.Template.Spec.Containers {
		text, ok := c.Resources.Requests[resource]
		if !ok {
			text = c.Resources.Limits[resource]
		}
		n, err := quantity(text, parts)
		if err != nil {
			return 0, fmt.Errorf("read resources.%s of container %s of StatefulSet %s: %w", resource, c.Name,
				s.Metadata.Name, err)
		}
		sum += n
	}
	return sum, nil
}

package setup

import (
	"fmt"

	"millrace/internal/app/config"
)

// Fleet is the loaders and shadows of all hosts of a run. Every host serves the same number of ranks and has the same
// number of processes, so each process knows the names of all. The zero Fleet is one host.
type Fleet struct {
	Ranks int // of each host
	World int // ranks of the run
}

// isSpread reports whether the run has several hosts.
func (f Fleet) isSpread() bool { return f.World > f.Ranks }

// hosts returns the number of hosts.
func (f Fleet) hosts() int {
	if !f.isSpread() {
		return 1
	}
	return f.World / f.Ranks
}

// name returns the name of a process of the host that serves the rank first. It is unique in the run.
func (f Fleet) name(role string, first, i int) string {
	if !f.isSpread() {
		return fmt.Sprintf("%s-%d", role, i)
	}
	return fmt.Sprintf("%s-%d-%d", role, first, i)
}

// Loaders returns the names of the loaders of the host that serves the rank first, and of the ranks after it.
func (f Fleet) Loaders(c *config.Config, first int) []string {
	out := make([]string, Loaders(c))
	for i := range out {
		out[i] = f.Loader(first, i)
	}
	return out
}

// Loader returns the name of loader i of the host that serves the rank first.
func (f Fleet) Loader(first, i int) string { return f.name("loader", first, i) }

// Shadows returns the names of the shadows of the host that serves the rank first.
func (f Fleet) Shadows(c *config.Config, first int) []string {
	out := make([]string, c.Reliability.Shadows)
	for i := range out {
		out[i] = f.name("shadow", first, i)
	}
	return out
}

// Sidecar returns the name of the sidecar of the host that serves the rank first.
func (f Fleet) Sidecar(first int) string { return fmt.Sprintf("sidecar-%d", first) }

// Stripes assigns the sources to the loaders of all hosts and returns the loader name of each stripe of source i. With
// fewer loaders than sources, sources share loaders. With more loaders, sources get several stripes, one for each
// loader. The loaders of a source are on as many hosts as possible.
func (f Fleet) Stripes(c *config.Config) [][]string {
	var loaders []string
	for i := range Loaders(c) {
		for host := range f.hosts() {
			loaders = append(loaders, f.name("loader", host*f.Ranks, i))
		}
	}
	n, k := len(loaders), len(c.Sources)
	out := make([][]string, k)
	if n <= k {
		for i := range out {
			out[i] = []string{loaders[i%n]}
		}
		return out
	}
	for i := range out {
		out[i] = loaders[i*n/k : (i+1)*n/k : (i+1)*n/k]
	}
	return out
}

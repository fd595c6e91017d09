package setup

import (
	"fmt"

	"millrace/internal/app/config"
)

// Place is the place of an `up` in its run. The zero Place is a run with one host.
type Place struct {
	IsSpread bool // the run has several hosts
	First    int  // first of the ranks of this host
}

// name returns the name of the process number i of a role. It is unique in the run.
func (p Place) name(role string, i int) string {
	if !p.IsSpread {
		return fmt.Sprintf("%s-%d", role, i)
	}
	return fmt.Sprintf("%s-%d-%d", role, p.First, i)
}

// Loaders returns the names of the loaders that an `up` starts.
func (p Place) Loaders(c *config.Config) []string {
	out := make([]string, Loaders(c))
	for i := range out {
		out[i] = p.Loader(i)
	}
	return out
}

// Loader returns the name of loader i of an `up`.
func (p Place) Loader(i int) string { return p.name("loader", i) }

// Shadows returns the names of the shadows of an `up`.
func (p Place) Shadows(c *config.Config) []string {
	out := make([]string, c.Reliability.Shadows)
	for i := range out {
		out[i] = p.name("shadow", i)
	}
	return out
}

// Sidecar returns the name of the sidecar of a host.
func (p Place) Sidecar() string { return fmt.Sprintf("sidecar-%d", p.First) }

// Stripes returns the number of stripes of each source. With fewer loaders than sources, a source has one stripe. With
// more loaders, there are as many stripes as loaders.
func Stripes(c *config.Config) []int {
	out, loaders := make([]int, len(c.Sources)), Readers(c)
	for i := range out {
		out[i] = max(1, (i+1)*loaders/len(out)-i*loaders/len(out))
	}
	return out
}

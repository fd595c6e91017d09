package setup

import (
	"fmt"

	"millrace/internal/app/config"
)

// Place is the place of an `up` in its run. The zero Place is a run with one host.
type Place struct {
	IsSpread bool // the run has several hosts
	First    int  // first of the ranks of this host
	Ranks    int  // of this host
	World    int  // ranks of the run
}

// Others returns the places of all hosts of the run, if each has as many ranks as this one.
func (p Place) Others() (out []Place) {
	for first := 0; first < p.World; first += p.Ranks {
		out = append(out, Place{IsSpread: true, First: first, Ranks: p.Ranks, World: p.World})
	}
	return out
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
	out := make([]string, p.count(c))
	for i := range out {
		out[i] = p.Loader(i)
	}
	return out
}

// count returns the number of loaders of an `up`. A range counts the loaders of the whole run: its hosts share the
// least number, and an engine adds others. The host of rank 0 has one in any case, and no step is planned without that
// rank. So a run needs no room of the engine.
func (p Place) count(c *config.Config) int {
	n := Loaders(c)
	if !p.IsSpread || !c.Loaders.IsRange() {
		return n
	}
	hosts, i := (p.World+p.Ranks-1)/p.Ranks, p.First/p.Ranks
	return max(0, (n-i+hosts-1)/hosts)
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

package config

import (
	"fmt"

	"millrace"
)

// Topology arranges the trainer's ranks. An error names what would divide; it wraps millrace.ErrInvalid.
func (c *Config) Topology(ranks int) (millrace.Topology, error) {
	t := millrace.Topology{Ranks: ranks, TP: int(c.Parallelism.TP), CP: int(c.Parallelism.CP), PP: int(c.Parallelism.PP)}
	if err := t.Validate(); err != nil {
		return t, c.ErrorAt("parallelism", err.Error(), "give another number of ranks")
	}
	if path, msg, cure, ok := c.divides(t.DP(), fmt.Sprintf(" * %d data-parallel ranks", t.DP())); !ok {
		return t, c.ErrorAt(path, msg, fmt.Sprintf("with %d ranks and this micro_batch_size, %s", ranks, cure))
	}
	_, err := c.group(t)
	return t, err
}

// Microbatches returns how many microbatches a step of the stage has on each data-parallel rank, once its batch is whole.
func (s *Stage) Microbatches(t millrace.Topology) uint32 {
	return s.GlobalBatchSize / (s.MicroBatchSize * uint32(t.DP()))
}

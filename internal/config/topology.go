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
	unit := uint64(c.MicroBatchSize) * uint64(t.DP())
	if uint64(c.GlobalBatchSize)%unit == 0 {
		return t, nil
	}
	cure := fmt.Sprintf("with %d ranks and this micro_batch_size, write a multiple of %d", ranks, unit)
	if unit <= 1<<20 {
		cure = fmt.Sprintf("with %d ranks and this micro_batch_size, write a multiple of %d: %s", ranks, unit, multiples(c.GlobalBatchSize, uint32(unit)))
	}
	return t, c.ErrorAt("global_batch_size", fmt.Sprintf(
		"global_batch_size %d does not divide by micro_batch_size %d * %d data-parallel ranks", c.GlobalBatchSize, c.MicroBatchSize, t.DP()), cure)
}

// Microbatches returns how many microbatches a step has on each data-parallel rank.
func (c *Config) Microbatches(t millrace.Topology) uint32 {
	return c.GlobalBatchSize / (c.MicroBatchSize * uint32(t.DP()))
}

package setup

import (
	"fmt"

	"millrace/constructors"
	"millrace/internal/app/config"
)

// LoaderMemory returns one loader process's part of limits.loader_memory in bytes. A shadow gets the same part, because
// it may be promoted before another process has ended.
func LoaderMemory(c *config.Config) int64 {
	return int64(c.Limits.LoaderMemory) / int64(Loaders(c)+int(c.Reliability.Shadows))
}

// SidecarMemory returns the bytes of a rank's largest batch, and the least limits.sidecar_memory for that many ranks of
// a host. Half of the limit is shared memory with room for two batches of each rank.
func SidecarMemory(c *config.Config, ranks int) (batch, needed int64) {
	batch = constructors.NewSet(c.Shapes(), c.PadMultiple).MaxBytes()
	return batch, 4 * batch * int64(ranks)
}

// CheckSidecarMemory refuses a limits.sidecar_memory that is too little for that many ranks of a host. The error names
// its place in the mixture file and a sufficient limit; it wraps millrace.ErrInvalid.
func CheckSidecarMemory(c *config.Config, ranks int) error {
	batch, needed := SidecarMemory(c, ranks)
	if needed <= int64(c.Limits.SidecarMemory) {
		return nil
	}
	const mib = 1 << 20
	return c.ErrorAt(
		"limits.sidecar_memory",
		fmt.Sprintf("limits.sidecar_memory %s is too little for %d ranks with batches of %d bytes",
			c.Limits.SidecarMemory, ranks, batch),
		fmt.Sprintf("write at least %dMiB", (needed+mib-1)/mib),
	)
}

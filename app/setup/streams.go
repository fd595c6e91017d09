package setup

import (
	"fmt"

	"millrace/app/config"
	"millrace/app/config/value"
	"millrace/sources/store/openfiles"
)

// trainParts is the number of equal parts of a shared limit that the stream `train` gets. Each other stream gets one.
const trainParts = 2

// Divide divides the limits of a run among its streams, and gives all of them one number of loaders. A run with one
// stream keeps its configuration as it is. The error of a limit that is too little names its place in the mixture file;
// it wraps millrace.ErrInvalid.
func Divide(c *config.Config, ranks int) error {
	if len(c.Streams) == 0 {
		return nil
	}
	whole := c.Limits
	parts := trainParts + len(c.Streams)
	if err := divideSidecar(c, ranks); err != nil {
		return err
	}
	files := int(whole.OpenFiles)
	if files == 0 {
		files = openfiles.Default()
	}
	c.Limits.LoaderMemory = whole.LoaderMemory / value.Bytes(parts) * trainParts
	c.Limits.OpenFiles = uint32(max(1, files*trainParts/parts))
	c.Loaders.Count = uint32(Loaders(c))
	processes := MostLoaders(c) + int(c.Reliability.Shadows)
	part := whole.LoaderMemory / value.Bytes(parts)
	if int64(part) < int64(processes)*leastPart {
		return c.ErrorAt(
			"limits.loader_memory",
			fmt.Sprintf(
				"limits.loader_memory %s is too little for %d streams in %d loaders and %d shadows: each process "+
					"needs at least %dMiB for each stream, and %d times as much for the stream train",
				whole.LoaderMemory,
				len(c.Streams)+1,
				MostLoaders(c),
				c.Reliability.Shadows,
				leastPart>>20,
				trainParts,
			),
			fmt.Sprintf("write at least %dMiB, or fewer loaders or streams", processes*parts*leastPart>>20),
		)
	}
	for i := range c.Streams {
		s := c.Streams[i].Config
		s.Limits.LoaderMemory, s.Loaders = part, c.Loaders
		s.Limits.OpenFiles = uint32(max(1, files/parts))
	}
	return nil
}

// divideSidecar divides limits.sidecar_memory in proportion to the batches of the streams.
func divideSidecar(c *config.Config, ranks int) error {
	whole, total := c.Limits.SidecarMemory, uint64(0)
	needs := map[string]uint64{}
	for name, s := range c.All() {
		_, needed := SidecarMemory(s, ranks)
		needs[name] = uint64(needed)
		total += needs[name]
	}
	if total > uint64(whole) {
		const mib = 1 << 20
		return c.ErrorAt(
			"limits.sidecar_memory",
			fmt.Sprintf("limits.sidecar_memory %s is too little for %d ranks with the batches of %d streams",
				whole, ranks, len(needs)),
			fmt.Sprintf("write at least %dMiB", (total+mib-1)/mib),
		)
	}
	for name, s := range c.All() {
		s.Limits.SidecarMemory = value.Bytes(needs[name] + value.MulDiv(uint64(whole)-total, needs[name], total))
	}
	return nil
}

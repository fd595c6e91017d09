package setup

import (
	"fmt"
	"runtime"

	"millrace"
	"millrace/app/config"
	"millrace/app/config/value"
	"millrace/constructors"
	"millrace/sources/store/openfiles"
	"millrace/text/tokenize"
)

// Host is the part of a host that a run may use.
type Host struct {
	Cores int // processors
	Files int // data files that a process may have open at once
	Ranks int // trainer ranks of the run on this host
}

// ThisHost describes this process's host, with `ranks` ranks of a run.
func ThisHost(ranks int) Host {
	return Host{Cores: runtime.GOMAXPROCS(0), Files: openfiles.Default(), Ranks: ranks}
}

// Measured has the facts that were measured or agreed on before the resources of a run are divided. The zero Measured
// is that of one host without profiles.
type Measured struct {
	Loaders, Readers int                  // as the hosts of the run have agreed; 0: as the mixture file says
	Profiles         map[string][]Profile // of the sources of each stream, in order; a stream may lack them
}

// Profile is the measured cost of reading a source. The zero Profile is not known. It decides which loaders read the
// source, and belongs to no identity.
type Profile struct {
	Nanoseconds uint64 // of work of one decoder, for a million tokens
	Resident    uint64 // bytes of memory that a loader holds for the source
}

// Resources is the division of the memory, files and loaders of a run on one host among its streams. It is immutable
// after Divide.
type Resources struct {
	Fleet   Fleet
	Streams map[string]Part
}

// Fleet is the numbers of the processes that read. All streams of a run have the same.
type Fleet struct {
	Loaders int  // loaders of an `up`, at the start and at least
	Most    int  // the largest number of loaders of an `up`
	IsRange bool // the run chooses the number, from Loaders to Most
	Readers int  // loaders of all hosts, for which the sources are divided into stripes
	Shadows int  // of an `up`
}

// Part is the part of one stream in the resources of a host. Sizes are bytes.
type Part struct {
	Fleet         Fleet
	LoaderMemory  int64     // of limits.loader_memory: for the stream in all loaders and shadows
	Reader        Reader    // of LoaderMemory: for each loader and shadow
	Runway        int64     // of LoaderMemory: for tokens that are planned ahead
	Walk          int64     // for documents, in a command that reads the stream without loaders
	WalkBuffers   int64     // in such a command, that random reads keep for later ones
	SidecarMemory int64     // of limits.sidecar_memory: for the stream
	Sidecar       Sidecar   // the division of SidecarMemory
	OpenFiles     int       // data files that a process has open at once; 0: the number that its own limit allows
	Profiles      []Profile // of the stream's sources in order; nil: none was measured
}

// Reader is the division of one loader's or shadow's part of limits.loader_memory.
type Reader struct {
	Heap     int64 // limit of the process's heap in bytes: the whole part
	Payload  int64 // of it, bytes of tokens and texts
	Encoders int   // at most, at least 1: the process's share of the processors
	// EncoderBytes are the bytes of each encoder. More remember more pieces of text.
	EncoderBytes int64
	Decoders     int   // goroutines. While half of them wait for a disk, the others keep the encoders busy.
	Buffers      int64 // bytes that random reads keep for later ones
	Procs        int   // processors that the process uses at once
	Ahead        int64 // bytes of remote files that are read ahead
}

// Sidecar is the division of a stream's part of limits.sidecar_memory. Frames, Arenas and Heap are the whole part.
type Sidecar struct {
	Frames  int64 // finished batches of all ranks
	Arenas  int64 // tokens of loaders
	Reserve int64 // of Arenas, for tokens that are fetched ahead
	Heap    int64 // plans and all else
}

// The least and the largest values of parts, in bytes.
const (
	leastProcess = 16 << 20  // of a loader or shadow: an encoder, two decoders and a few documents
	leastAuto    = 64 << 20  // of a loader that `loaders: auto` adds
	mostWalk     = 512 << 20 // of a walk, independent of the limits of the run
	walkBuffers  = 32 << 20  // beside it, independent of the limits of the run
	leastAhead   = 4 << 20   // of a loader with remote files, to read ahead
	mostAhead    = 64 << 20
	decoderBytes = 2 << 20 // a decoder's scratch
)

// The shares of parts.
const (
	trainParts     = 2  // equal parts of a shared limit that the stream `train` gets; each other stream gets one
	buffersShare   = 16 // 1/buffersShare is for the data that random reads keep
	runwayShare    = 4  // 1/runwayShare is for tokens that are planned ahead
	remoteDecoders = 32 // with a remote source; each has one read in flight
)

// Divide divides the resources of a host among the streams of a run. The error of a limit that is too little for all
// streams names its place in the mixture file; it wraps millrace.ErrInvalid. CheckLoaderMemory and CheckSidecarMemory
// check the part of one stream.
func Divide(c *config.Config, host Host, m Measured) (*Resources, error) {
	if len(c.Streams) == 0 {
		alone := Alone(c, host, m)
		return &Resources{Fleet: alone.Fleet, Streams: map[string]Part{string(millrace.Train): alone}}, nil
	}
	sidecar, err := divideSidecar(c, host.Ranks)
	if err != nil {
		return nil, err
	}
	train := share(c, host, trainParts)
	out := &Resources{Fleet: newFleet(c, train.LoaderMemory, host, m), Streams: map[string]Part{}}
	if err := checkStreams(c, out.Fleet); err != nil {
		return nil, err
	}
	for name, stream := range c.All() {
		part := train
		if stream != c {
			part = share(c, host, 1)
		}
		part.SidecarMemory, part.Profiles = sidecar[name], m.Profiles[name]
		out.Streams[name] = part.completed(stream, out.Fleet, host)
	}
	return out, nil
}

// Alone returns the part of a stream that has all limits of its mixture file.
func Alone(c *config.Config, host Host, m Measured) Part {
	part := Part{
		LoaderMemory:  int64(c.Limits.LoaderMemory),
		SidecarMemory: int64(c.Limits.SidecarMemory),
		OpenFiles:     int(c.Limits.OpenFiles),
		Profiles:      m.Profiles[string(millrace.Train)],
	}
	return part.completed(c, newFleet(c, part.LoaderMemory, host, m), host)
}

// share returns `parts` equal parts of the limits that the streams of a run divide equally.
func share(c *config.Config, host Host, parts int) Part {
	files, all := int(c.Limits.OpenFiles), trainParts+len(c.Streams)
	if files == 0 {
		files = host.Files
	}
	return Part{
		LoaderMemory: int64(c.Limits.LoaderMemory) / int64(all) * int64(parts),
		OpenFiles:    max(1, files*parts/all),
	}
}

// divideSidecar divides limits.sidecar_memory in proportion to the batches of the streams.
func divideSidecar(c *config.Config, ranks int) (parts map[string]int64, err error) {
	whole, total := uint64(c.Limits.SidecarMemory), uint64(0)
	needs := map[string]uint64{}
	for name, s := range c.All() {
		_, needed := SidecarMemory(s, ranks)
		needs[name] = uint64(needed)
		total += needs[name]
	}
	if total > whole {
		return nil, c.ErrorAt(
			"limits.sidecar_memory",
			fmt.Sprintf("limits.sidecar_memory %s is too little for %d ranks with the batches of %d streams",
				c.Limits.SidecarMemory, ranks, len(needs)),
			fmt.Sprintf("write at least %dMiB", (total+mib-1)/mib),
		)
	}
	parts = map[string]int64{}
	for name, needed := range needs {
		parts[name] = int64(needed + value.MulDiv(whole-total, needed, total))
	}
	return parts, nil
}

// newFleet returns the numbers of processes. Auto is one loader for each source: a file that crashes a decoder then
// affects one source. The number of processors bounds it, and each loader and shadow has at least leastAuto of the
// memory.
func newFleet(c *config.Config, memory int64, host Host, m Measured) Fleet {
	f := Fleet{
		Loaders: m.Loaders, Readers: m.Readers, IsRange: c.Loaders.IsRange(), Shadows: int(c.Reliability.Shadows),
	}
	if f.Loaders == 0 {
		f.Loaders = int(c.Loaders.Count)
	}
	if f.Loaders == 0 {
		f.Loaders = max(1, min(len(c.Sources), host.Cores, int(memory/leastAuto)-f.Shadows))
	}
	f.Most = f.Loaders
	if f.IsRange {
		f.Most = int(c.Loaders.Most)
	}
	if f.Readers == 0 {
		f.Readers = f.Most
	}
	return f
}

// processes returns the largest number of loaders and shadows of a host.
func (f Fleet) processes() int { return f.Most + f.Shadows }

// completed returns the part with its divisions.
func (p Part) completed(c *config.Config, f Fleet, host Host) Part {
	p.Fleet = f
	p.Reader = newReader(c, p.LoaderMemory/int64(f.processes()), f.Loaders, host.Cores)
	p.Runway = p.LoaderMemory / runwayShare
	p.Walk, p.WalkBuffers = min(p.LoaderMemory/2, mostWalk), walkBuffers
	m := p.SidecarMemory
	p.Sidecar = Sidecar{Frames: m / 2, Arenas: m / 4, Reserve: m / 8, Heap: m / 4}
	return p
}

// newReader divides the memory of a loader or shadow. A shadow gets as much as a loader, because it may be promoted
// before another process has ended. Encoders take at most a quarter of it. The rest, without the scratch of decoders
// and of random reads, is payload and room for the garbage collector in equal parts.
func newReader(c *config.Config, part int64, loaders, cores int) Reader {
	r := Reader{Heap: part}
	r.Encoders = max(min((cores+loaders-1)/loaders, int(part/4/tokenize.LeastEncoderBytes())), 1)
	r.EncoderBytes = tokenize.EncoderBytes(part / 4 / int64(r.Encoders))
	r.Decoders = 2 * r.Encoders
	r.Procs = min(cores, r.Decoders+2)
	if c.IsRemote() { // most decoders wait for a store
		r.Decoders = max(r.Decoders, min(remoteDecoders, int(part/8/decoderBytes)))
		r.Ahead = min(max(part/8, leastAhead), mostAhead)
	}
	r.Buffers = part / buffersShare
	fixed := int64(r.Encoders)*r.EncoderBytes + int64(r.Decoders)*decoderBytes + r.Buffers + r.Ahead
	r.Payload = max((part-fixed)/2, part/4)
	return r
}

// SidecarMemory returns the bytes of a rank's largest batch, and the least part of limits.sidecar_memory for that many
// ranks of a host. Half of it is shared memory with room for two batches of each rank.
func SidecarMemory(c *config.Config, ranks int) (batch, needed int64) {
	batch = constructors.NewSet(c.Shapes(), c.PadMultiple).MaxBytes()
	return batch, 4 * batch * int64(ranks)
}

const mib = 1 << 20

// checkStreams refuses a limits.loader_memory that is too little for the streams of a run.
func checkStreams(c *config.Config, f Fleet) error {
	parts := trainParts + len(c.Streams)
	if int64(c.Limits.LoaderMemory)/int64(parts) >= int64(f.processes())*leastProcess {
		return nil
	}
	return c.ErrorAt(
		"limits.loader_memory",
		fmt.Sprintf(
			"limits.loader_memory %s is too little for %d streams in %d loaders and %d shadows: each process "+
				"needs at least %dMiB for each stream, and %d times as much for the stream train",
			c.Limits.LoaderMemory, len(c.Streams)+1, f.Most, f.Shadows, leastProcess/mib, trainParts,
		),
		fmt.Sprintf("write at least %dMiB, or fewer loaders or streams", f.processes()*parts*leastProcess/mib),
	)
}

// CheckLoaderMemory refuses a limits.loader_memory of which a stream's part is too little for the loaders and shadows.
// The error names its place in the mixture file and a sufficient limit; it wraps millrace.ErrInvalid.
func CheckLoaderMemory(c *config.Config, p Part) error {
	if p.Reader.Heap >= leastProcess {
		return nil
	}
	return c.ErrorAt(
		"limits.loader_memory",
		fmt.Sprintf("limits.loader_memory %s is too little for %d loaders and %d shadows of at least %dMiB each",
			value.Bytes(p.LoaderMemory), p.Fleet.Most, p.Fleet.Shadows, leastProcess/mib),
		fmt.Sprintf("write at least %dMiB, or fewer loaders", p.Fleet.processes()*leastProcess/mib),
	)
}

// CheckSidecarMemory refuses a limits.sidecar_memory of which a stream's part is too little for that many ranks of a
// host. The error names its place in the mixture file and a sufficient limit; it wraps millrace.ErrInvalid.
func CheckSidecarMemory(c *config.Config, p Part, ranks int) error {
	batch, needed := SidecarMemory(c, ranks)
	if needed <= p.SidecarMemory {
		return nil
	}
	return c.ErrorAt(
		"limits.sidecar_memory",
		fmt.Sprintf("limits.sidecar_memory %s is too little for %d ranks with batches of %d bytes",
			value.Bytes(p.SidecarMemory), ranks, batch),
		fmt.Sprintf("write at least %dMiB", (needed+mib-1)/mib),
	)
}

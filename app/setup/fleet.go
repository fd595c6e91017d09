package setup

import (
	"fmt"
	"slices"

	"millrace/app/config/value"
)

// Place is the place of an `up` in its run. The zero Place is a run with one host.
type Place struct {
	IsSpread bool // the run has several hosts
	First    int  // first of the ranks of this host
	Ranks    int  // of this host
	World    int  // ranks of the run
}

// Others returns the places of all hosts of the run, if each has the same number of ranks as this one.
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
func (p Place) Loaders(f Fleet) []string {
	out := make([]string, p.count(f))
	for i := range out {
		out[i] = p.Loader(i)
	}
	return out
}

// count returns the number of loaders of an `up`. A range counts the loaders of the whole run: its hosts share the
// least number, and an engine adds others. The host of rank 0 has one in any case, and no step is planned without that
// rank. So a run needs no room of the engine.
func (p Place) count(f Fleet) int {
	if !p.IsSpread || !f.IsRange {
		return f.Loaders
	}
	hosts, i := (p.World+p.Ranks-1)/p.Ranks, p.First/p.Ranks
	return max(0, (f.Loaders-i+hosts-1)/hosts)
}

// Loader returns the name of loader i of an `up`.
func (p Place) Loader(i int) string { return p.name("loader", i) }

// Shadows returns the names of the shadows of an `up`.
func (p Place) Shadows(f Fleet) []string {
	out := make([]string, f.Shadows)
	for i := range out {
		out[i] = p.name("shadow", i)
	}
	return out
}

// Sidecar returns the name of the sidecar of a host.
func (p Place) Sidecar() string { return fmt.Sprintf("sidecar-%d", p.First) }

// Share is the part of a source in the work of a run.
type Share struct {
	Stripes  int
	Work     int64 // of each stripe, in millionths of the loaders' work; 0: not known
	Resident int64 // bytes that each loader of a stripe holds
}

// whole is the work of all sources at once.
const whole = 1_000_000

// Shares divides the sources of the stream into stripes. Without any profile, each source has one stripe if there are
// fewer loaders than sources. With more loaders, there are as many stripes as loaders.
//
// With profiles, a stripe has at most 9/8 of one loader's equal part of the work, at the time at which the mixture
// needs its source most. There are at least as many stripes as loaders. Beyond that number, all stripes must fit into
// the memory of the loaders in any order.
func (s *Stream) Shares() ([]Share, error) {
	out, loaders := make([]Share, len(s.Config.Sources)), s.Part.Fleet.Readers
	if !slices.ContainsFunc(s.Part.Profiles, func(p Profile) bool { return p != Profile{} }) {
		for i := range out {
			out[i].Stripes = max(1, (i+1)*loaders/len(out)-i*loaders/len(out))
		}
		return out, nil
	}
	work, err := s.mostWork()
	if err != nil {
		return nil, err
	}
	d := division{shares: out, work: work, loaders: loaders, memory: s.Part.Reader.Heap * int64(loaders)}
	for i := range out {
		out[i] = Share{Stripes: 1, Resident: int64(s.Part.Profiles[i].Resident)}
		d.count, d.held, d.largest = d.count+1, d.held+out[i].Resident, max(d.largest, out[i].Resident)
	}
	for d.split() {
	}
	for i := range out {
		out[i].Work = max(work[i]/int64(out[i].Stripes), 1)
	}
	return out, nil
}

// division is a division of sources into stripes that grows.
type division struct {
	shares        []Share
	work          []int64 // by source, in parts of whole
	loaders       int
	memory        int64 // of all loaders
	count         int   // of stripes
	held, largest int64 // resident bytes of all stripes, and of one
}

// split gives one more stripe to the source with the heaviest stripes of those that may have it, and reports whether
// there is any.
func (d *division) split() bool {
	best := -1
	for i := range d.shares {
		if d.maySplit(i) && (best < 0 ||
			d.work[i]*int64(d.shares[best].Stripes) > d.work[best]*int64(d.shares[i].Stripes)) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	s := &d.shares[best]
	s.Stripes++
	d.count, d.held = d.count+1, d.held+s.Resident
	return true
}

func (d *division) maySplit(i int) bool {
	s := d.shares[i]
	if s.Stripes >= d.loaders {
		return false
	}
	isHeavy := 8*d.work[i]*int64(d.loaders) > 9*whole*int64(s.Stripes)
	fits := d.held+s.Resident+int64(d.loaders)*d.largest <= d.memory
	return d.count < d.loaders || isHeavy && fits
}

// mostWork returns the largest part that each source has in the work, over all entries of the schedule. A source
// without a profile costs as much as the mean of the others.
func (s *Stream) mostWork() ([]int64, error) {
	schedule, err := schedule(s.Config, s.Facts)
	if err != nil {
		return nil, err
	}
	costs := s.ReadingCosts()
	out := make([]int64, len(s.Config.Sources))
	for _, k := range schedule.Milestones() {
		at := k.From.Count + k.Over.Count // the ramp has ended
		total, parts := uint64(0), make([]uint64, len(out))
		for i, share := range schedule.Divide(schedule.At(at, at), nil) {
			parts[i] = uint64(share) * costs[i]
			total += parts[i]
		}
		for i, part := range parts {
			out[i] = max(out[i], int64(value.MulDiv(part, whole, max(total, 1))))
		}
	}
	return out, nil
}

// ReadingCosts returns the work of one decoder for a thousand tokens of each source, in nanoseconds. A source without a
// profile costs as much as the mean of the others; 0: none has one.
func (s *Stream) ReadingCosts() []uint64 {
	const most = 1 << 30 // so that no sum of shares overflows
	out, sum, known := make([]uint64, len(s.Config.Sources)), uint64(0), uint64(0)
	for i, p := range s.Part.Profiles {
		if p != (Profile{}) {
			out[i] = min(max(p.Nanoseconds/1000, 1), most)
			sum, known = sum+out[i], known+1
		}
	}
	for i := range out {
		if out[i] == 0 && known > 0 {
			out[i] = max(sum/known, 1)
		}
	}
	return out
}

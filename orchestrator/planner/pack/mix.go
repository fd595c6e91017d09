package pack

import "millrace/mixing"

// noEnd is more than any lag.
const noEnd = int64(1) << 62

// Mix describes the sources of a window's segments. A charge is an amount in the unit of the mixture.
type Mix struct {
	Source []uint32 // of each segment
	Charge []int64  // of each segment
	Share  []uint32 // of each source, in parts of mixing.One
	// Lag is each source's share of everything delivered before the window, minus the amount delivered from the source,
	// in parts of mixing.One.
	Lag []int64
}

// balance follows the lags of sources while a window is filled. A lag grows by the source's share of every charge that
// gets a bin. It falls by the charges of the source itself. Products may wrap, and so does their sum; lags fit.
type balance struct {
	mix    Mix
	base   []int64 // of each source: the lag without the share of placed
	placed int64   // charges
	waits  []int   // of each source: segments without a bin

	bin int64 // the mean charge of a full bin, in parts of mixing.One; noEnd if the bins have room for everything
}

// reset begins a window in which no segment has a bin.
func (b *balance) reset(mix Mix, units []uint32, bins int, capacity uint32) {
	b.mix, b.placed = mix, 0
	b.base = append(b.base[:0], mix.Lag...)
	b.waits = append(b.waits[:0], make([]int, len(mix.Lag))...)
	charges, total := int64(0), uint64(0)
	for i, u := range units {
		charges += mix.Charge[i]
		total += uint64(u)
		b.waits[mix.Source[i]]++
	}
	b.bin = max(charges/int64(max(total/uint64(capacity), 1)), 1) * mixing.One
	if total <= uint64(bins)*uint64(capacity) {
		b.bin = noEnd
	}
}

// place counts a segment that gets a bin.
func (b *balance) place(segment uint32) {
	source, charge := b.mix.Source[segment], b.mix.Charge[segment]
	b.base[source] -= charge * mixing.One
	b.placed += charge
	b.waits[source]--
}

// lag returns the lag of a segment's source.
func (b *balance) lag(segment uint32) int64 {
	source := b.mix.Source[segment]
	return b.base[source] + int64(b.mix.Share[source])*b.placed
}

// most returns the largest lag of a source with segments that have no bin.
func (b *balance) most() int64 {
	most := -noEnd
	for source, waits := range b.waits {
		if waits > 0 {
			most = max(most, b.base[source]+int64(b.mix.Share[source])*b.placed)
		}
	}
	return most
}

// mayGo reports whether a segment may get a bin: its source leads by at most half a bin.
func (b *balance) mayGo(segment uint32) bool { return b.lag(segment) >= -b.bin/2 }

package millrace

import (
	"encoding/binary"
	"math"
)

// RemovedShard is the shard of a SampleID of a file that was removed from a source. Its documents count zero.
const RemovedShard = math.MaxUint32

// Eras says which files of a source each epoch reads. An era is a run of epochs that read the same files. The zero
// value is a source whose epochs all read all files.
//
// Invariants: (1) From begins with 0 and rises; (2) the Files of all runs add up to the files that are there.
type Eras struct {
	From []Epoch   // by era: its first epoch
	Runs []FileRun // of all files in the order of their names, with those that were removed
}

// FileRun is a run of files that the same eras read, or one file that was removed.
type FileRun struct {
	Era      uint32 // the first era that reads them; later eras read them too
	Files    uint32 // files in a row; 0: one file that was removed
	Ordinals uint64 // of the removed file in each epoch
}

// IsZero reports whether all epochs read all files.
func (e *Eras) IsZero() bool { return len(e.From) == 0 }

// Files returns the number of the files that are there.
func (e *Eras) Files() (n uint64) {
	for _, r := range e.Runs {
		n += uint64(r.Files)
	}
	return n
}

// Encode returns the bytes that saved states and loaders get, none for the zero value: the number of eras less one, the
// epochs of each after the first since the one before, the number of runs, and of each 2 · era, with 1 added for a
// removed file, and its files or its ordinals. All are varints.
func (e *Eras) Encode() []byte {
	if e.IsZero() {
		return nil
	}
	out := binary.AppendUvarint(nil, uint64(len(e.From)-1))
	for i := 1; i < len(e.From); i++ {
		out = binary.AppendUvarint(out, uint64(e.From[i]-e.From[i-1]))
	}
	out = binary.AppendUvarint(out, uint64(len(e.Runs)))
	for _, r := range e.Runs {
		if r.Files > 0 {
			out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(r.Era)<<1), uint64(r.Files))
		} else {
			out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(r.Era)<<1|1), r.Ordinals)
		}
	}
	return out
}

// DecodeEras reads the bytes that Encode wrote. Its error wraps ErrInvalid.
func DecodeEras(in []byte) (Eras, error) {
	if len(in) == 0 {
		return Eras{}, nil
	}
	damaged := Errorf(ErrInvalid, "the list of the files that its epochs read (%d bytes) is damaged", len(in))
	failed := false
	take := func(most uint64) uint64 {
		v, n := binary.Uvarint(in)
		if n <= 0 || v > most || failed {
			failed = true
			return 0
		}
		in = in[n:]
		return v
	}
	out := Eras{From: []Epoch{0}}
	for n := take(uint64(len(in))); n > 0 && !failed; n-- {
		next := uint64(out.From[len(out.From)-1]) + take(math.MaxUint32)
		failed = failed || next > math.MaxUint32 || next == uint64(out.From[len(out.From)-1])
		out.From = append(out.From, Epoch(next))
	}
	for n := take(uint64(len(in))); n > 0 && !failed; n-- {
		head := take(math.MaxUint32)
		r := FileRun{Era: uint32(head >> 1)}
		if head&1 == 0 {
			r.Files = uint32(take(math.MaxUint32))
			failed = failed || r.Files == 0
		} else {
			r.Ordinals = take(math.MaxUint64)
		}
		failed = failed || int(r.Era) >= len(out.From)
		out.Runs = append(out.Runs, r)
	}
	if failed || len(in) > 0 || out.Files() > math.MaxUint32 {
		return Eras{}, damaged
	}
	return out, nil
}

// EraFile is a file in the list of an era.
type EraFile struct {
	Shard    uint32 // in the manifest of the files that are there, or RemovedShard
	Ordinals uint64 // of a removed file
}

// List returns the files that an era reads, in the order of their names.
func (e *Eras) List(era int) (out []EraFile) {
	shard := uint32(0)
	for _, r := range e.Runs {
		switch reads := int(r.Era) <= era; {
		case r.Files == 0 && reads:
			out = append(out, EraFile{RemovedShard, r.Ordinals})
		case reads:
			for i := range r.Files {
				out = append(out, EraFile{Shard: shard + i})
			}
		}
		shard += r.Files
	}
	return out
}

package millrace

import (
	"strconv"
	"strings"
)

// Shuffle is the order of a source's ordinals.
type Shuffle string

// The shuffles. docs/ARCHITECTURE.md describes each.
const (
	Global      Shuffle = "global" // a keyed permutation of all records; needs counts
	Blocks      Shuffle = "blocks" // shards in permuted order, a permutation inside a block of consecutive records
	InFileOrder Shuffle = "none"   // shards by name, records in file order
)

// Words returns the shuffles.
func (Shuffle) Words() []string {
	return []string{string(Global), string(Blocks), string(InFileOrder)}
}

// Shard is one file of a source as pinned at the start of a run.
type Shard struct {
	Name   string // path below the source's root; part of every sample's id
	Path   string // on this host; not part of the identity
	Size   int64  // bytes
	Digest Digest // of the size and the first and last MiB
	Count  uint64 // records; 0 if Counted is false
	// Counted reports whether Count is known. With global shuffle it always is.
	Counted bool
}

// Manifest is the list of a source's shards in name order, and the shuffle that their bytes allow.
type Manifest struct {
	Source      string
	Format      string
	Shuffle     Shuffle
	Why         string // why Shuffle differs from the configured one; empty if it does not
	Shards      []Shard
	Fingerprint Digest // over names, sizes, digests, format, shuffle and the other settings that decide the samples
}

// SampleName returns the id that users see: <path below the root>#<record>.
func (m *Manifest) SampleName(id SampleID) string {
	if int(id.Shard) >= len(m.Shards) {
		return id.String()
	}
	return m.Shards[id.Shard].Name + "#" + strconv.FormatUint(id.Record, 10)
}

// Sample is the inverse of SampleName; ok is false for a name of another source.
func (m *Manifest) Sample(name string) (id SampleID, ok bool) {
	at := strings.LastIndexByte(name, '#')
	if at < 0 {
		return id, false
	}
	record, err := strconv.ParseUint(name[at+1:], 10, 64)
	if err != nil {
		return id, false
	}
	for i := range m.Shards {
		if m.Shards[i].Name == name[:at] {
			id = SampleID{Shard: uint32(i), Record: record}
			return id, m.SampleName(id) == name
		}
	}
	return id, false
}

// SeekPoint is a place from which a block-ordered stream can be read without counting the records before it: the start
// of a block. Global order needs none, so it stays zero.
type SeekPoint struct {
	Ordinal    Ordinal // the block's first
	Epoch      Epoch
	EpochStart Ordinal // the epoch's first
	Shard      uint32  // position in the epoch's shard order
	Block      uint32  // number of the block in its shard
	Record     uint64  // first record of the block in its shard
}

// Quarantine is one record that could not be decoded. Every attempt passes it over, and it counts against the
// quarantine budget.
type Quarantine struct {
	Source string `json:"source"`
	ID     string `json:"id"`
	Offset int64  `json:"offset"` // byte of the uncompressed file at which the record starts; -1: the format has none
	Reason string `json:"reason"`
}

// UnreadMedia is the reason of a record with an image, a video, a sound or a file beside its text. Check refuses a
// source with one such record: the others may have them too, and a placeholder is no image.
const UnreadMedia = "images, videos, sounds and files are not read"

// Cure is the advice for a source with too many records like this one.
func (q Quarantine) Cure() string {
	if q.HasMedia() {
		return "leave such records out by a `filter` of source " + q.Source + ", or take another source"
	}
	if strings.HasPrefix(q.Reason, "field ") {
		switch {
		case strings.Contains(q.Reason, " is absent; "):
			return "write the field that holds the text, as `text: FIELD` of source " + q.Source +
				", or leave such records out by `missing: skip`"
		case strings.Contains(q.Reason, " is null"):
			return "leave such records out by `missing: skip` of source " + q.Source + ", or raise quarantine.budget"
		}
	}
	return "repair the files, or raise quarantine.budget"
}

// HasMedia reports whether the record is refused because of UnreadMedia.
func (q Quarantine) HasMedia() bool { return strings.HasSuffix(q.Reason, UnreadMedia) }

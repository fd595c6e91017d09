package planner

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

// The compact form of a State is what trainers save: base64 of varints with a sum at the end. A source takes 50 to 70 bytes with an
// seek point, 30 to 40 without, and never more than 128.
//
//	version, step, tokens, number of sources, then of each source
//	flags, ordinal, offset, epoch, tokens, ordinal-samples (±), deficit (±)
//	and with a seek point: ordinals back from the cursor, epochs back (±), ordinals into its epoch, shard, block, record
//	inside a window or with carried segments: steps done, tokens done, number of carried segments, then of each
//	flags and age, sources passed over where it is another than before, ordinals back from the cursor or on from the one before, offset, length
//	at last the first bytes of BLAKE2b-256 of all before
const (
	finishedFlag  = 1
	seekPointFlag = 2
	sumBytes      = 8

	max32 = 1<<32 - 1
	max64 = 1<<64 - 1
)

// compactText is base64 without padding; strict, so that a state has one text only.
func compactText() *base64.Encoding { return base64.RawStdEncoding.Strict() }

// Compact returns the form that ParseState reads.
func (s State) Compact() string {
	b := make([]byte, 0, 64+48*len(s.Sources))
	for _, n := range []uint64{uint64(s.Version), uint64(s.Step), s.Tokens, uint64(len(s.Sources))} {
		b = binary.AppendUvarint(b, n)
	}
	for i := range s.Sources {
		b = s.Sources[i].compact(b)
	}
	if s.between() {
		b = s.compactBetween(b)
	}
	return compactText().EncodeToString(append(b, sum(b)...))
}

func sum(b []byte) []byte {
	h := blake2b.Sum256(b)
	return h[:sumBytes]
}

func (s *SourceState) compact(b []byte) []byte {
	flags := byte(0)
	if s.Finished {
		flags |= finishedFlag
	}
	a := s.SeekPoint
	if a != (millrace.SeekPoint{}) {
		flags |= seekPointFlag
	}
	b = append(b, flags)
	for _, n := range []uint64{uint64(s.Ordinal), uint64(s.Offset), uint64(s.Epoch), s.Tokens} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.AppendVarint(b, int64(uint64(s.Ordinal)-s.Samples))
	b = binary.AppendVarint(b, s.Deficit)
	if flags&seekPointFlag != 0 {
		b = binary.AppendUvarint(b, uint64(s.Ordinal-a.Ordinal))
		b = binary.AppendVarint(b, int64(s.Epoch)-int64(a.Epoch))
		for _, n := range []uint64{uint64(a.Ordinal - a.EpochStart), uint64(a.Shard), uint64(a.Block), a.Record} {
			b = binary.AppendUvarint(b, n)
		}
	}
	return b
}

// ParseState reads what Compact wrote. It refuses what was cut off or changed since, and what Validate refuses.
func ParseState(text string) (State, error) {
	refuse := func(why string) (State, error) {
		return State{}, millrace.Errorf(millrace.ErrInvalid, "planner state: %s", why)
	}
	b, err := compactText().DecodeString(text)
	if err != nil || len(b) < sumBytes {
		return refuse("it is not one, or cut off")
	}
	body := b[:len(b)-sumBytes]
	if !bytes.Equal(b[len(body):], sum(body)) {
		return refuse("its sum does not match, so it was changed or cut off after it was saved")
	}
	r := compactReader{rest: body}
	s := State{Version: int(r.unsigned(max32 >> 1))}
	if err := s.checkVersion(); err != nil {
		return State{}, err
	}
	s.Step, s.Tokens = millrace.Step(r.unsigned(max64)), r.unsigned(max64)
	n := r.unsigned(uint64(len(body))) // a source has several bytes
	if r.bad {
		return refuse("it holds other numbers than a state has")
	}
	s.Sources = make([]SourceState, n)
	for i := range s.Sources {
		r.source(&s.Sources[i])
	}
	if len(r.rest) > 0 && s.Version > 1 {
		r.between(&s)
		r.bad = r.bad || !s.between()
	}
	if r.bad || len(r.rest) > 0 {
		return refuse("it holds other numbers than a state has")
	}
	s.Version = PlannerVersion
	return s, s.Validate(len(s.Sources))
}

// Renew returns what Compact wrote, of any version that this program reads, as it writes it now; any other text as it is.
func Renew(text string) string {
	st, err := ParseState(text)
	if err != nil {
		return text
	}
	return st.Compact()
}

// compactReader reads numbers one after the other and remembers that one was not there, or too large.
type compactReader struct {
	rest []byte
	bad  bool
}

func (r *compactReader) unsigned(most uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > most {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *compactReader) signed() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *compactReader) source(s *SourceState) {
	flags := r.unsigned(finishedFlag | seekPointFlag)
	s.Finished = flags&finishedFlag != 0
	s.Ordinal = millrace.Ordinal(r.unsigned(max64))
	s.Offset = uint32(r.unsigned(max32))
	s.Epoch = millrace.Epoch(r.unsigned(max32))
	s.Tokens = r.unsigned(max64)
	s.Samples = uint64(s.Ordinal) - uint64(r.signed())
	s.Deficit = r.signed()
	if flags&seekPointFlag == 0 {
		return
	}
	a := &s.SeekPoint
	a.Ordinal = s.Ordinal - millrace.Ordinal(r.unsigned(uint64(s.Ordinal)))
	epoch := int64(s.Epoch) - r.signed()
	r.bad = r.bad || epoch < 0 || epoch > max32
	a.Epoch = millrace.Epoch(epoch)
	a.EpochStart = a.Ordinal - millrace.Ordinal(r.unsigned(uint64(a.Ordinal)))
	a.Shard, a.Block, a.Record = uint32(r.unsigned(max32)), uint32(r.unsigned(max32)), r.unsigned(max64)
	r.bad = r.bad || *a == millrace.SeekPoint{}
}

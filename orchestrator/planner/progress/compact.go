package progress

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

// The compact form of a State is base64 of varints with a checksum at the end. A source takes 50 to 70 bytes with a
// seek point, 30 to 40 without, and never more than 128.
//
//	version, step, tokens, number of sources; of each source
//	  flags, ordinal, offset, epoch, tokens, ordinal-samples (±), deficit (±)
//	  with a seek point: ordinals back from the cursor, epochs back (±), ordinals into its epoch, shard, block, record
//	  with counts: documents left out because a field is missing, documents that were too long
//	  with trained labels: their number
//	inside a window or with carried segments: steps done, tokens done, number of carried segments; of each
//	  flags and age, sources passed over if it is of another source than the one before,
//	  ordinals back from the cursor or on from the one before, offset, length
//	the first 8 bytes of BLAKE2b-256 of everything before
const (
	finishedFlag  = 1
	seekPointFlag = 2
	countsFlag    = 4
	trainedFlag   = 8
	sumBytes      = 8
)

// compactText is base64 without padding. It is strict, so that a state has exactly one text.
func compactText() *base64.Encoding { return base64.RawStdEncoding.Strict() }

// Compact returns the text that trainers save and that Parse reads.
func (s State) Compact() string {
	b := make([]byte, 0, 64+48*len(s.Sources))
	for _, n := range []uint64{uint64(s.Version), uint64(s.Step), s.Tokens, uint64(len(s.Sources))} {
		b = binary.AppendUvarint(b, n)
	}
	for i := range s.Sources {
		b = appendSource(b, &s.Sources[i])
	}
	if !s.isPlain() {
		b = binary.AppendUvarint(b, uint64(s.Done.Steps))
		b = binary.AppendUvarint(b, s.Done.Tokens)
		b = appendCarried(b, s.Carried, s.Sources)
	}
	return compactText().EncodeToString(append(b, checksum(b)...))
}

func checksum(b []byte) []byte {
	h := blake2b.Sum256(b)
	return h[:sumBytes]
}

func appendSource(b []byte, s *Source) []byte {
	flags := byte(0)
	if s.Finished {
		flags |= finishedFlag
	}
	a := s.SeekPoint
	if a != (millrace.SeekPoint{}) {
		flags |= seekPointFlag
	}
	if s.Counts.Missing|s.Counts.TooLong != 0 {
		flags |= countsFlag
	}
	if s.Counts.Trained > 0 {
		flags |= trainedFlag
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
	if flags&countsFlag != 0 {
		b = binary.AppendUvarint(binary.AppendUvarint(b, s.Counts.Missing), s.Counts.TooLong)
	}
	if flags&trainedFlag != 0 {
		b = binary.AppendUvarint(b, s.Counts.Trained)
	}
	return b
}

// Parse reads a text that Compact wrote, of any supported version. It refuses a text that was cut off or changed, and a
// state that Validate refuses.
func Parse(text string) (State, error) {
	refuse := func(why string) (State, error) {
		return State{}, millrace.Errorf(millrace.ErrInvalid, "planner state: %s", why)
	}
	b, err := compactText().DecodeString(text)
	if err != nil || len(b) < sumBytes {
		return refuse("its text is no planner state, or is cut off")
	}
	body := b[:len(b)-sumBytes]
	if !bytes.Equal(b[len(body):], checksum(body)) {
		return refuse("its sum does not match, so it was changed or cut off after it was saved")
	}
	r := numbers{rest: body}
	s := State{Version: int(r.unsigned(max32 >> 1))}
	if err := s.checkVersion(); err != nil {
		return State{}, err
	}
	s.Step, s.Tokens = millrace.Step(r.unsigned(max64)), r.unsigned(max64)
	n := r.unsigned(uint64(len(body))) // a source has several bytes
	if r.failed {
		return refuse("it holds other numbers than a state has")
	}
	s.Sources = make([]Source, n)
	for i := range s.Sources {
		r.readSource(&s.Sources[i])
	}
	if len(r.rest) > 0 && s.Version > 1 {
		s.Done = Done{Steps: uint32(r.unsigned(max32)), Tokens: r.unsigned(max64)}
		s.Carried = r.readCarried(s.Sources)
		if s.isPlain() {
			r.fail()
		}
	}
	if r.failed || len(r.rest) > 0 {
		return refuse("it holds other numbers than a state has")
	}
	s.Version = max(s.Version, unpooled)
	return s, s.Validate(len(s.Sources))
}

func (r *numbers) readSource(s *Source) {
	flags := r.unsigned(finishedFlag | seekPointFlag | countsFlag | trainedFlag)
	s.Finished = flags&finishedFlag != 0
	s.Ordinal = millrace.Ordinal(r.unsigned(max64))
	s.Offset = uint32(r.unsigned(max32))
	s.Epoch = millrace.Epoch(r.unsigned(max32))
	s.Tokens = r.unsigned(max64)
	s.Samples = uint64(s.Ordinal) - uint64(r.signed())
	s.Deficit = r.signed()
	if flags&seekPointFlag != 0 {
		r.readSeekPoint(s)
	}
	if flags&countsFlag != 0 {
		s.Counts = Counts{Missing: r.unsigned(max64), TooLong: r.unsigned(max64)}
		if s.Counts == (Counts{}) {
			r.fail()
		}
	}
	if flags&trainedFlag != 0 {
		if s.Counts.Trained = r.unsigned(max64); s.Counts.Trained == 0 {
			r.fail()
		}
	}
}

func (r *numbers) readSeekPoint(s *Source) {
	a := &s.SeekPoint
	a.Ordinal = s.Ordinal - millrace.Ordinal(r.unsigned(uint64(s.Ordinal)))
	epoch := int64(s.Epoch) - r.signed()
	a.Epoch = millrace.Epoch(epoch)
	a.EpochStart = a.Ordinal - millrace.Ordinal(r.unsigned(uint64(a.Ordinal)))
	a.Shard, a.Block, a.Record = uint32(r.unsigned(max32)), uint32(r.unsigned(max32)), r.unsigned(max64)
	if epoch < 0 || epoch > max32 || *a == (millrace.SeekPoint{}) {
		r.fail()
	}
}

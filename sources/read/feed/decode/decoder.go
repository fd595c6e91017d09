package decode

import (
	"context"
	"fmt"
	"maps"
	"time"

	"millrace"
	"millrace/internal/activity"
	"millrace/internal/failpoint"
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/sources/facts/kept"
	"millrace/sources/read/budget"
	"millrace/sources/read/filter"
)

// mostScratch bounds the tokens of each scratch that a decoder keeps.
const mostScratch = 256 << 10

// Unknown is the length of a document that no length store has.
const Unknown = ^uint32(0)

// Part is a set of documents of one span that one decoder makes. Several decoders may make parts of one span at the
// same time: they write different elements of Slots and Refused.
type Part struct {
	Number  uint32                         // among the parts of the span
	Slots   []Slot                         // of the whole span
	Refused []uint32                       // by slot: bits of the filters that refuse it; nil without filters
	Rejects map[uint32]millrace.Quarantine // by slot: offered as rejects; read only if Known
	Known   bool                           // every length is known: plans may count on the documents
	Keep    bool                           // keep the tokens; otherwise only lengths are found

	// Serve, if set, gets the held tokens of each slot at once, and its record's passed-through fields. They are valid
	// until it returns; bad is nil or the reason why there are none. With Serve, Lengths has the length of the document
	// with which each slot was offered, or Unknown.
	Serve   func(slot uint32, tokens []uint32, fields string, bad *millrace.Quarantine) error
	Lengths []uint32
}

// IsRefused reports whether the source's own filter refuses a slot, so that its tokens are not kept. bits has the
// refusals of a span by slot; it is nil without filters.
func IsRefused(bits []uint32, slot uint32) bool { return bits != nil && bits[slot]&filter.Own != 0 }

// Outcome is the result of a part, beside the lengths in its slots.
type Outcome struct {
	Tokens  Tokens                         // of the kept documents, at the slots' Off
	Fields  map[uint32]string              // by slot of a kept document: passed-through fields of its record
	Rejects map[uint32]millrace.Quarantine // by slot: found before the length was known
	Runs    map[uint32]tokenid.Runs        // likewise: of ordinals with untrained labels that plans may cut
	Faults  map[uint32]millrace.Quarantine // by slot: bad although it was offered with a length
	Texts   int                            // records that were tokenised
	Spent   time.Duration                  // on tokenising them
}

// Decoder makes the documents of one part after another, of any source. One goroutine uses it.
type Decoder struct {
	src      *sources.Source // of the part
	piece    uint32          // tokens of a piece of src; 0: slots are whole documents
	progress func()
	fail     *failpoint.Set
	large    *budget.Large

	// of the part being made
	part    Part
	out     Outcome
	before  int           // tokens in buf before the record's
	buf     []uint32      // the part's tokens; the last record's, if only lengths are found
	isOwn   bool          // buf was made for this part alone, which is large
	lengths []kept.Length // found in this part, of shard
	shard   uint32
	check   sources.DocumentCheck // of shard

	// reused, so that a record costs no allocation
	record sources.Record
	doing  *activity.Activity
	tokens []uint32 // of a text's record
	text   []byte   // likewise, if it was read from a file
	slots  []uint32
	act    func() error
	what   func() string

	rec    *sources.Record // being tokenised
	fields string          // passed-through ones of rec
	bits   uint32          // of the filters that refuse it
	judges *sources.Judge  // of the filters of judged
	judged *sources.Source
	others others // of judged
	asked  bool   // the others know the answers for rec
	give   func() // gives back the room of a large record; nil: it has none
}

// New returns a decoder. It calls progress after every record, and for every MiB of a long one. The decoders of a
// process share the room for large records.
func New(progress func(), fail *failpoint.Set, large *budget.Large) *Decoder {
	d := &Decoder{progress: progress, fail: fail, large: large, slots: make([]uint32, 1)}
	d.act = func() (err error) {
		d.fail.Hit("loader/decode/before")
		before := d.turn(activity.Tokenise)
		if d.src.HoldsTokens() {
			d.buf, err = d.src.Document(d.buf, d.rec, d.progress)
		} else {
			began := time.Now()
			d.fail.Hit("loader/tokenise/before")
			d.buf, err = d.src.Document(d.buf, d.rec, d.progress)
			d.out.Texts, d.out.Spent = d.out.Texts+1, d.out.Spent+time.Since(began)
		}
		d.turn(before)
		d.progress()
		if err == nil && !d.part.Known {
			d.others.ask(d.rec, d.total(), d.buf[d.before:])
			d.asked = true
		}
		if err == nil {
			err = d.judge(int(d.total()))
		}
		if err == nil && (d.part.Known || d.bits&filter.Own == 0) {
			d.fields, err = d.judgeOf().Passed(d.rec)
		}
		return err
	}
	d.what = func() string { return d.src.SampleName(d.shard, d.rec.Number) }
	return d
}

// Begin starts a part of a source.
func (d *Decoder) Begin(src *sources.Source, p Part) {
	if d.judged != src {
		d.judged, d.judges, d.others = src, nil, othersOf(src)
	}
	d.others.begin()
	d.src, d.part, d.out, d.shard, d.bits = src, p, Outcome{}, 0, 0
	d.piece = src.PieceTokens()
	d.buf, d.isOwn, d.lengths = d.buf[:0], false, d.lengths[:0]
	d.check = d.src.DocumentCheck()
}

// Finish remembers the lengths found in the part and returns its outcome, which the caller owns.
func (d *Decoder) Finish() Outcome {
	d.remember()
	out := d.out
	d.out = Outcome{}
	switch {
	case d.isOwn:
		out.Tokens, d.buf, d.isOwn = unpacked(d.buf), nil, false
	case d.part.Keep:
		out.Tokens = Pack(d.buf)
	}
	if cap(d.buf) > mostScratch {
		d.buf = nil
	}
	if cap(d.tokens) > mostScratch {
		d.tokens = nil
	}
	// an idle decoder keeps no document
	d.part, d.record, d.rec, d.fields, d.src = Part{}, sources.Record{}, nil, "", nil
	d.check = sources.DocumentCheck{}
	return out
}

// remember keeps the lengths found in the decoder's shard.
func (d *Decoder) remember() {
	d.src.Remember(d.shard, d.lengths)
	d.others.remember(d.shard)
	d.lengths = d.lengths[:0]
}

// turn changes to another activity and returns the one before. Records that hold tokens are not tokenised: the time
// of their few instructions is not taken.
func (d *Decoder) turn(kind activity.Kind) (before activity.Kind) {
	if d.src.HoldsTokens() {
		return kind
	}
	return d.doing.Turn(kind)
}

// endActivity ends the activity of a shard.
func (d *Decoder) endActivity() {
	d.doing.End(0)
	d.doing = nil
}

// MakeText makes the slots of the part from its block's text, which is in a store. Of a known part it leaves out
// those that the source's own filter refuses, as InFileOrder does.
func (d *Decoder) MakeText(ctx context.Context, text *Text, store Store) error {
	if len(d.part.Slots) > 0 {
		d.doing = d.src.BeginDecode(d.part.Slots[0].Shard)
		defer d.endActivity()
	}
	for i := range d.part.Slots {
		if d.part.Known && IsRefused(d.part.Refused, uint32(i)) {
			continue
		}
		s := &d.part.Slots[i]
		at, err := text.find(s.Record)
		if err != nil {
			return err
		}
		if err := d.takeRoom(ctx, int64(text.records[at].n)); err != nil {
			return err
		}
		if d.record, err = text.record(at, store, &d.text, d.tokens[:0]); err != nil {
			d.giveRoom()
			return err
		}
		if d.record.Tokens != nil {
			d.tokens = d.record.Tokens
		}
		d.slots[0] = uint32(i)
		if err := d.place(ctx, s.Shard, &d.record, d.slots[:1]); err != nil {
			return err
		}
	}
	return nil
}

// place makes the tokens of one record, files them under all its slots, and serves them. An error ends the feed. A
// fault of the record alone becomes a reject or a fault.
func (d *Decoder) place(ctx context.Context, shard uint32, r *sources.Record, slots []uint32) error {
	defer d.giveRoom()
	err := d.takeRoom(ctx, int64(len(r.Text))+idBytes*int64(len(r.Tokens)))
	if err == nil {
		err = d.make(shard, r, slots)
	}
	if err != nil || d.part.Serve == nil {
		return err
	}
	if d.give != nil {
		defer time.AfterFunc(serveGrace, d.give).Stop()
	}
	before := d.doing.Turn(activity.Fetch)
	defer d.doing.Turn(before)
	for _, i := range slots {
		q, bad := d.out.Rejects[i]
		s := &d.part.Slots[i]
		if was := d.part.Lengths[i]; !bad && was != Unknown && was != s.Length {
			q, bad = d.quarantine(shard, d.rec, lengthChanged(was, s.Length)), true
		}
		var err error
		if bad {
			err = d.part.Serve(i, nil, "", &q)
		} else {
			err = d.part.Serve(i, d.buf[s.Off:s.Off+s.Held(d.piece)], d.fields, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// total returns the tokens of the document whose tokens were appended to buf last.
func (d *Decoder) total() uint32 {
	if d.rec.Total > 0 {
		return d.rec.Total
	}
	return uint32(len(d.buf) - d.before)
}

func (d *Decoder) make(shard uint32, r *sources.Record, slots []uint32) error {
	if d.shard != shard {
		d.remember()
		d.shard = shard
	}
	if !d.part.Keep {
		d.buf = d.buf[:0]
	}
	d.rec, d.fields, d.asked = r, "", false
	d.growTo(slots[0])
	d.before = len(d.buf)
	before := d.before
	err := r.Err
	if err == nil {
		err = sources.Fence(millrace.ErrBadSample, d.what, d.act)
	}
	if err != nil && !d.asked && !d.part.Known {
		d.others.tell(r, err)
	}
	if err != nil {
		d.buf = d.buf[:before]
		if !d.leavesOut(err) {
			d.refuse(shard, r, slots, err)
			return nil
		}
	}
	n := d.total()
	d.doing.Made(len(d.buf) - d.before)
	found := kept.Length{Record: r.Number, Tokens: n, Refused: d.bits}
	if int(n) == len(d.buf)-before { // a part of a document has no checksum
		if err := d.check.Compare(shard, &found, d.buf[before:]); err != nil {
			return err
		}
	}
	if !d.part.Known {
		if d.src.HasUntrained() {
			found.Untrained = untrainedLabels(d.buf[before:])
		}
		d.lengths = append(d.lengths, found)
	}
	kept := d.part.Refused == nil
	for _, i := range slots {
		if d.part.Refused != nil && !d.part.Known {
			d.part.Refused[i] = d.bits
		}
		kept = kept || !IsRefused(d.part.Refused, i)
		if err := d.file(i, r, n); err != nil {
			return err
		}
	}
	if !kept { // no plan asks for a document that the source's own filter refuses
		d.buf = d.buf[:before]
		return nil
	}
	d.gather(slots)
	if d.fields != "" && d.part.Keep {
		for _, i := range slots {
			d.out.Fields = with(d.out.Fields, i, d.fields)
		}
	}
	return nil
}

// file notes the length of a slot's document, and its part.
func (d *Decoder) file(i uint32, r *sources.Record, n uint32) error {
	s := &d.part.Slots[i]
	switch {
	case !d.part.Known:
		s.Length = n
		d.label(i)
	case s.Length != n && !d.isReject(i):
		if err := d.check.LengthChanged(s.Shard, s.Record, s.Length, n); err != nil {
			return err
		}
		d.fault(i, r, lengthChanged(s.Length, n))
		return nil
	}
	s.Part = d.part.Number
	return nil
}

// label notes the labels of a slot's ordinal that are left out of the loss. The document is at the end of buf.
func (d *Decoder) label(i uint32) {
	if !d.src.HasUntrained() || d.part.Serve != nil {
		return
	}
	s, document := &d.part.Slots[i], d.buf[d.before:]
	from := min(s.Start-d.rec.Start, uint32(len(document)))
	held := document[from:min(from+s.Held(d.piece), uint32(len(document)))]
	if s.Untrained = untrainedLabels(held); s.Untrained > 0 && s.MayBeCut(d.src) {
		d.out.Runs = with(d.out.Runs, i, tokenid.RunsOf(held))
	}
}

// MayBeCut reports whether plans may cut the slot's ordinal.
func (s *Slot) MayBeCut(src *sources.Source) bool { return s.Tokens(src.PieceTokens()) > src.Uncut() }

func lengthChanged(was, is uint32) string {
	return fmt.Sprintf("it was offered with %d tokens and has %d: the file or the length store changed", was, is)
}

// isReject reports whether a slot of a known span was offered as a reject: its length is 0, also if its record is good
// now.
func (d *Decoder) isReject(i uint32) bool {
	_, ok := d.part.Rejects[i]
	return ok
}

// refuse files a record that has no tokens: a reject before its length is known, a fault after.
func (d *Decoder) refuse(shard uint32, r *sources.Record, slots []uint32, cause error) {
	reason := cause.Error()
	if !d.part.Known {
		d.lengths = append(d.lengths, kept.Length{Record: r.Number, Bad: true})
	}
	for _, i := range slots {
		if d.part.Known {
			if !d.isReject(i) {
				d.fault(i, r, reason)
			}
			continue
		}
		d.out.Rejects = with(d.out.Rejects, i, d.quarantine(shard, r, reason))
		d.part.Slots[i].Length, d.part.Slots[i].Untrained = 0, 0
		if d.part.Refused != nil {
			d.part.Refused[i] = 0
		}
	}
}

func (d *Decoder) fault(i uint32, r *sources.Record, reason string) {
	d.out.Faults = with(d.out.Faults, i, d.quarantine(d.part.Slots[i].Shard, r, reason))
}

func (d *Decoder) quarantine(shard uint32, r *sources.Record, reason string) millrace.Quarantine {
	id := d.src.SampleName(shard, r.Number)
	return millrace.Quarantine{Source: d.src.Name(), ID: id, Offset: r.Offset, Reason: reason}
}

// judge asks the filters about the record just tokenised.
func (d *Decoder) judge(tokens int) (err error) {
	if d.src.Filters() == nil || d.part.Known {
		return nil
	}
	d.bits, err = d.judgeOf().Refused(d.rec, tokens)
	return err
}

// judgeOf returns the judge of the source.
func (d *Decoder) judgeOf() *sources.Judge {
	if d.judges == nil {
		d.judges = d.src.Judge()
	}
	return d.judges
}

// leavesOut reports whether the record, which has no document, is passed over like one that a filter refuses.
func (d *Decoder) leavesOut(cause error) (ok bool) {
	d.bits, ok = d.judgeOf().LeavesOut(d.rec, cause)
	return ok
}

// Merge returns a map with the entries of both; it may change the first.
func Merge[V any](into, from map[uint32]V) map[uint32]V {
	if into == nil {
		return from
	}
	maps.Copy(into, from)
	return into
}

// with sets one entry of a map that may be nil.
func with[V any](m map[uint32]V, key uint32, value V) map[uint32]V {
	if m == nil {
		m = make(map[uint32]V)
	}
	m[key] = value
	return m
}

package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/proto"
)

// A change of the mixture is settled when its step is below the watermark of the newest attempt. The run state at the
// watermark contains it, so only a start at an earlier step needs it again. The state hands settled changes over to the
// ledger's index, so its size does not grow with the number of changes.

// settledStream names the index entries that hold settled changes. The key of an entry has the attempt in which its
// changes were settled, and their step. Within an attempt these steps rise.
func settledStream(stream millrace.Stream) string { return string(stream) + settledSuffix }

const settledSuffix = " changes"

// kindOf returns the kind of a change: the field number in Mixed.
func kindOf(c *proto.Mixed) uint32 {
	m := c.ProtoReflect()
	if d := m.WhichOneof(m.Descriptor().Oneofs().ByName("change")); d != nil {
		return uint32(d.Number())
	}
	return 0
}

// DescribeSettled describes an index entry that holds settled changes in words. ok is false for any other index entry.
func DescribeSettled(key checkpoint.StepKey, body []byte) (text string, ok bool) {
	stream, isSettled := strings.CutSuffix(key.Stream, settledSuffix)
	var at proto.Settled
	if !isSettled || pbuf.Unmarshal(body, &at) != nil {
		return "", false
	}
	return fmt.Sprintf("%d changes of the mixture of %s", len(at.Changes), stream), true
}

// split divides the changes into those that are settled and the others, both in the order of the journal and without
// those that a settled change replaces. New weights or costs stay in the second list while earlier ones do, because
// their order counts.
func (s *State) split() (settled, left []*proto.Mixed) {
	for _, c := range s.Mixed {
		if c.Attempt > s.Attempt.GetAttempt() || c.AtStep >= s.Watermark {
			left = append(left, c)
			continue
		}
		settled, left = without(settled, c), without(left, c)
		isBefore := func(o *proto.Mixed) bool { return kindOf(o) == kindOf(c) && c.GetSkip() == nil }
		if slices.ContainsFunc(left, isBefore) {
			left = append(left, c)
		} else {
			settled = append(settled, c)
		}
	}
	return settled, left
}

// SettledEntries returns the index entries of the changes that Settle takes out of the state. They are durable before
// Settle is called.
func (s *State) SettledEntries(stream millrace.Stream) ([]checkpoint.IndexEntry, error) {
	settled, _ := s.split()
	slices.SortStableFunc(settled, func(a, b *proto.Mixed) int { return cmp.Compare(a.AtStep, b.AtStep) })
	var out []checkpoint.IndexEntry
	for len(settled) > 0 {
		step, n := settled[0].AtStep, 1
		for n < len(settled) && settled[n].AtStep == step {
			n++
		}
		body, err := pbuf.MarshalOptions{Deterministic: true}.Marshal(&proto.Settled{Changes: settled[:n]})
		if err != nil {
			return nil, fmt.Errorf("encode the changes of the mixture at step %d: %w", step, err)
		}
		key := checkpoint.StepKey{Stream: settledStream(stream), Attempt: s.Attempt.GetAttempt(), Step: step}
		out, settled = append(out, checkpoint.IndexEntry{Key: key, Body: body}), settled[n:]
	}
	return out, nil
}

// Settle takes the settled changes out of the state.
func (s *State) Settle() {
	settled, left := s.split()
	if len(settled) == 0 {
		return
	}
	s.Mixed = left
	for _, c := range settled {
		s.Settled = max(s.Settled, c.AtStep+1)
		if c.GetSkip() == nil { // a skip replaces those alone that begin at its step
			s.cut(kindOf(c), c.AtStep)
		}
	}
}

// cut puts settled changes of earlier attempts out of force: those of one kind, or of all for 0, for steps from a step
// on.
func (s *State) cut(kind uint32, step uint64) {
	attempt := s.Attempt.GetAttempt()
	isSame := func(k *proto.Cut) bool { return k.Attempt == attempt && k.Kind == kind }
	if attempt > 1 && !slices.ContainsFunc(s.Cuts, isSame) {
		s.Cuts = append(s.Cuts, &proto.Cut{Attempt: attempt, Kind: kind, Step: step})
	}
}

// settledAt returns the settled changes for the steps in [from, to) that are in force in an attempt, in the order of
// the journal.
func (s *State) settledAt(attempt uint32, from, to uint64) (out []*proto.Mixed, err error) {
	if s.index == nil || from >= s.Settled {
		return nil, nil
	}
	for a := uint32(1); a <= attempt; a++ {
		key := checkpoint.StepKey{Stream: settledStream(s.stream), Attempt: a, Step: from}
		end := key
		end.Step = to
		err := s.index(key, end, func(e checkpoint.IndexEntry) error {
			var at proto.Settled
			if err := pbuf.Unmarshal(e.Body, &at); err != nil {
				return fmt.Errorf("read the changes of the mixture at step %s: %w", e.Key, err)
			}
			for _, c := range at.Changes {
				if !s.isCut(a, attempt, c) {
					out = append(out, c)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isCut reports whether a change that was settled in an attempt is out of force in a later one.
func (s *State) isCut(settled, attempt uint32, c *proto.Mixed) bool {
	return slices.ContainsFunc(s.Cuts, func(k *proto.Cut) bool {
		return settled < k.Attempt && k.Attempt <= attempt && c.AtStep >= k.Step && (k.Kind == 0 || k.Kind == kindOf(c))
	})
}

// ChangesOnly returns a state that has the changes of the mixture alone. Later changes of s do not change it.
func (s *State) ChangesOnly() *State {
	return &State{Mixed: slices.Clip(s.Mixed), Settled: s.Settled, Cuts: slices.Clip(s.Cuts), stream: s.stream,
		index: s.index}
}

// ChangesAt returns the changes of the mixture that took effect with a step of an attempt, for people; names are those
// of the sources, in order.
func (s *State) ChangesAt(names []string, attempt uint32, step uint64) (out []*proto.MixChange, err error) {
	list, err := s.settledAt(attempt, step, step+1)
	if err != nil {
		return nil, err
	}
	var known []*proto.Mixed // without those that a later one replaces
	for _, c := range s.Mixed {
		if c.Attempt <= attempt {
			known = append(without(known, c), c)
		}
	}
	list = slices.DeleteFunc(list, func(c *proto.Mixed) bool { // a crash may have left them in both places
		return slices.ContainsFunc(s.Mixed, func(o *proto.Mixed) bool { return pbuf.Equal(c, o) })
	})
	for _, c := range append(list, known...) {
		if c.AtStep == step && c.Attempt <= attempt {
			out = append(out, &proto.MixChange{AtStep: c.AtStep, Text: Describe(c, names), By: c.By, Why: c.Why,
				Attempt: c.Attempt, InForce: true})
		}
	}
	return out, nil
}

package wire

import (
	"fmt"

	"millrace"
	"millrace/proto"
)

// PlanToProto encodes a sealed plan; state is the run state after it.
func PlanToProto(p *millrace.Plan, state []byte) *proto.Plan {
	return &proto.Plan{
		Fence: &proto.Fence{Stream: string(p.Stream), Attempt: uint32(p.Attempt), Term: uint64(p.Term)},
		Step:  uint64(p.Step), Ranks: p.Ranks, Microbatches: p.Microbatches,
		Assignments:    assignmentsToProto(p.Assignments),
		SequenceLength: p.SequenceLength, MicroBatch: p.MicroBatch, Content: p.Content[:], Placement: p.Placement[:],
		Leaves: digestsToProto(p.Leaves), Last: p.Last, State: state, Held: heldToProto(p), Counted: p.Counted,
	}
}

func heldToProto(p *millrace.Plan) *proto.Held {
	if p.Held == nil {
		return nil
	}
	out := &proto.Held{Proof: digestsToProto(p.Proof), Labels: p.Labels}
	for _, r := range p.Held {
		out.Rank = append(out.Rank, uint32(r))
	}
	return out
}

func digestsToProto(digests []millrace.Digest) []byte {
	out := make([]byte, 0, 16*len(digests))
	for i := range digests {
		out = append(out, digests[i][:]...)
	}
	return out
}

func assignmentsToProto(as []millrace.Assignment) *proto.Assignments {
	n := len(as)
	out := &proto.Assignments{
		Source: make([]uint32, n), Ordinal: make([]uint64, n), Epoch: make([]uint32, n), Shard: make([]uint32, n),
		Record: make([]uint64, n), Offset: make([]uint32, n), Length: make([]uint32, n), More: make([]bool, n),
		Rank: make([]uint32, n), Microbatch: make([]uint32, n), Row: make([]uint32, n), Start: make([]uint32, n),
	}
	for i := range as {
		a := &as[i]
		out.Source[i], out.Ordinal[i], out.Epoch[i] = a.Source, uint64(a.Ordinal), uint32(a.Epoch)
		out.Shard[i], out.Record[i], out.Offset[i], out.Length[i] = a.ID.Shard, a.ID.Record, a.Offset, a.Length
		out.More[i], out.Rank[i], out.Microbatch[i], out.Row[i], out.Start[i] = a.More, uint32(
			a.Rank), a.Microbatch, a.Row, a.Start
	}
	out.Part = column(as, func(a *millrace.Assignment) uint32 { return a.Part })
	out.Parts = column(as, func(a *millrace.Assignment) uint32 { return a.Parts })
	out.Holder = column(as, func(a *millrace.Assignment) uint32 { return a.Holder })
	out.Patches = column(as, func(a *millrace.Assignment) uint32 { return a.Patches })
	out.Untrained = column(as, func(a *millrace.Assignment) uint32 { return a.Untrained })
	return out
}

// column returns one number of every assignment. It returns nil if the number is 0 in all assignments.
func column(as []millrace.Assignment, of func(*millrace.Assignment) uint32) []uint32 {
	for i := range as {
		if of(&as[i]) != 0 {
			out := make([]uint32, len(as))
			for i := range as {
				out[i] = of(&as[i])
			}
			return out
		}
	}
	return nil
}

// PlanFromProto decodes a plan and checks that its columns agree.
func PlanFromProto(m *proto.Plan) (*millrace.Plan, error) {
	as, err := assignmentsFromProto(m.GetAssignments())
	if err != nil {
		return nil, fmt.Errorf("decode plan of step %d: %w", m.GetStep(), err)
	}
	if len(m.GetLeaves())%16 != 0 || len(m.GetHeld().GetProof())%16 != 0 {
		return nil, fmt.Errorf("decode plan of step %d: %d bytes of leaves and %d of a proof; a digest has 16",
			m.GetStep(), len(m.GetLeaves()), len(m.GetHeld().GetProof()))
	}
	p := &millrace.Plan{
		Stream: millrace.Stream(m.GetFence().GetStream()), Attempt: millrace.Attempt(m.GetFence().GetAttempt()),
		Step: millrace.Step(m.GetStep()), Term: millrace.Term(m.GetFence().GetTerm()),
		Ranks: m.GetRanks(), Microbatches: m.GetMicrobatches(), Assignments: as, Last: m.GetLast(),
		SequenceLength: m.GetSequenceLength(), MicroBatch: m.GetMicroBatch(), Counted: m.GetCounted(),
		Leaves: digestsFromProto(m.GetLeaves()),
	}
	copy(p.Content[:], m.GetContent())
	copy(p.Placement[:], m.GetPlacement())
	if h := m.GetHeld(); h != nil {
		p.Held, p.Proof, p.Labels = make([]millrace.Rank, len(h.Rank)), digestsFromProto(h.Proof), h.Labels
		for i, r := range h.Rank {
			p.Held[i] = millrace.Rank(r)
		}
	}
	return p, nil
}

func digestsFromProto(b []byte) []millrace.Digest {
	out := make([]millrace.Digest, len(b)/16)
	for i := range out {
		copy(out[i][:], b[16*i:])
	}
	return out
}

func assignmentsFromProto(m *proto.Assignments) ([]millrace.Assignment, error) {
	n := len(m.GetSource())
	for _, l := range []int{
		len(m.GetOrdinal()), len(m.GetEpoch()), len(m.GetShard()), len(m.GetRecord()), len(m.GetOffset()),
		len(m.GetLength()),
		len(m.GetMore()), len(m.GetRank()), len(m.GetMicrobatch()), len(m.GetRow()), len(m.GetStart()),
	} {
		if l != n {
			return nil, fmt.Errorf("%d entries in one column, %d in another", n, l)
		}
	}
	for _, l := range []int{
		len(m.GetPart()), len(m.GetParts()), len(m.GetHolder()), len(m.GetPatches()), len(m.GetUntrained()),
	} {
		if l != n && l != 0 {
			return nil, fmt.Errorf("%d entries in one column, %d in another", n, l)
		}
	}
	at := func(column []uint32, i int) uint32 {
		if len(column) == 0 {
			return 0
		}
		return column[i]
	}
	out := make([]millrace.Assignment, n)
	for i := range out {
		out[i] = millrace.Assignment{
			Segment: millrace.Segment{
				Source:  m.Source[i],
				Ordinal: millrace.Ordinal(m.Ordinal[i]),
				Epoch:   millrace.Epoch(m.Epoch[i]),
				ID: millrace.SampleID{
					Shard:  m.Shard[i],
					Record: m.Record[i],
				},
				Offset:  m.Offset[i],
				Length:  m.Length[i],
				Patches: at(m.Patches, i),
				More:    m.More[i],

				Untrained: at(m.Untrained, i),
			},
			Rank: millrace.Rank(m.Rank[i]), Microbatch: m.Microbatch[i], Row: m.Row[i], Start: m.Start[i],
			Part: at(m.Part, i), Parts: at(m.Parts, i), Holder: at(m.Holder, i),
		}
	}
	return out, nil
}

package constructors

import "millrace"

// A segment that several ranks share is cut in zigzag: its padded length is 2n equal chunks, of which rank r of n has chunks r and
// 2n-1-r, one behind the other, so that causal attention costs all ranks the same. That is the order of Megatron's
// get_batch_on_this_cp_rank and of TransformerEngine's thd_get_partitioned_indices, document by document. Where a segment is split over
// data-parallel ranks too (Assignment.Parts), each of its two chunks is cut again: slice Part of Parts, for context-parallel rank c of
// C, is rank Part*C + c of Parts*C.

// run is a part of a segment's tokens that lies in one piece: tokens from … to, at column `at` of the row.
type run struct{ at, from, to int }

// extent is how large a varlen microbatch is for one rank.
type extent struct {
	segments int // that are sliced
	shared   int // padded tokens of these, before slicing; a masked document where there are none
	held     int // segments that this rank holds whole
	own      int // padded tokens of these
}

// arranged is a microbatch as one rank builds it: slices first, then what the rank holds whole. Start counts columns before slicing, and
// of what is held whole columns of the rank's arrays.
type arranged struct {
	part   []millrace.Assignment
	tokens [][]uint32
	masked []bool
	extent
}

// least is the length of a varlen microbatch in which nothing is sliced: a masked document, one token where nobody shares it.
func (c *Collator) least() int {
	if c.ranks == 1 {
		return 1
	}
	return 2 * int(c.ranks)
}

// arrange puts a microbatch in the order in which it is built. tokens and masked may be nil.
func (c *Collator) arrange(part []millrace.Assignment, tokens [][]uint32, masked []bool) arranged {
	if !c.shape.Local {
		in := arranged{part: part, tokens: tokens, masked: masked, extent: extent{segments: len(part), shared: c.least()}}
		if len(part) > 0 {
			last := &part[len(part)-1]
			in.shared = int(last.Start + last.Columns(c.pad))
		}
		return in
	}
	var in arranged
	take := func(i int, start int) {
		a := part[i]
		a.Start = uint32(start)
		in.part = append(in.part, a)
		if tokens != nil {
			in.tokens = append(in.tokens, tokens[i])
		}
		if masked != nil {
			in.masked = append(in.masked, masked[i])
		}
	}
	for i := range part {
		if part[i].Holder == 0 {
			take(i, in.shared)
			in.shared += int(part[i].Columns(c.pad))
			in.segments++
		}
	}
	if in.segments == 0 {
		in.shared = c.least()
	}
	for i := range part {
		if part[i].Holder == c.rank+1 {
			take(i, in.shared/int(c.ranks)+in.own)
			in.own += int(part[i].Columns(c.pad))
			in.held++
		}
	}
	return in
}

// room is how far a segment must be from its row's end, in columns before slicing: with slices its padded place, else its tokens. It is
// not ok where the segment cannot be cut into equal chunks or is nothing for this shape.
func (c *Collator) room(a *millrace.Assignment) (columns uint64, ok bool) {
	if a.Holder > 0 {
		return uint64(a.Length), c.shape.Local && a.Parts == 0
	}
	if a.Parts == 0 && c.ranks == 1 {
		return uint64(a.Length), a.Part == 0
	}
	columns = uint64(a.Columns(c.pad))
	return columns, columns%(2*uint64(c.ranks)) == 0 && a.Start%c.ranks == 0 && a.Part < max(a.Parts, 1)
}

// runs writes what the rank has of a segment to out, and returns the part of it that is used.
func (c *Collator) runs(a *millrace.Assignment, out *[2]run) []run {
	if a.Holder > 0 || a.Parts == 0 && c.ranks == 1 {
		out[0] = run{int(a.Start), 0, int(a.Length)}
		return out[:1]
	}
	chunk, length := int(a.Columns(c.pad)/(2*c.ranks)), int(a.Length)
	chunks := 2 * int(max(a.Parts, 1)*c.ranks)
	first, at := int(a.Part*c.ranks+c.rank), int(a.Start/c.ranks)
	for i, number := range [2]int{first, chunks - 1 - first} {
		out[i] = run{at + i*chunk, min(number*chunk, length), min((number+1)*chunk, length)}
	}
	return out[:]
}

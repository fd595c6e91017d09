package tier

import (
	"sync"

	"millrace"
	"millrace/constructors"
	"millrace/sidecar"
)

// bytesOf returns the bytes of the tokens of ranks.
func bytesOf(plan *millrace.Plan, ranks []millrace.Rank, p sidecar.Payload) (n int64) {
	for _, r := range ranks {
		for m := range plan.Microbatches {
			tokens, err := p.Tokens(r, m)
			if err != nil {
				return n
			}
			for _, t := range tokens {
				n += int64(t.Width() * t.Len())
			}
		}
	}
	return n
}

// union implements sidecar.Payload with the payloads of different ranks. Ranks that were not fetched have no tokens.
type union struct {
	plan  *millrace.Plan
	of    map[millrace.Rank]sidecar.Payload
	parts []sidecar.Payload // each once
}

func (u *union) add(ranks []millrace.Rank, p sidecar.Payload) {
	u.parts = append(u.parts, p)
	for _, r := range ranks {
		u.of[r] = p
	}
}

// Tokens implements sidecar.Payload.
func (u *union) Tokens(rank millrace.Rank, microbatch uint32) ([]constructors.Tokens, error) {
	if p := u.of[rank]; p != nil {
		return p.Tokens(rank, microbatch)
	}
	return make([]constructors.Tokens, len(u.plan.Part(rank, microbatch))), nil
}

// Masked implements sidecar.Payload.
func (u *union) Masked(rank millrace.Rank, microbatch uint32) []bool {
	if p := u.of[rank]; p != nil {
		return p.Masked(rank, microbatch)
	}
	return nil
}

// Fields implements sidecar.Payload.
func (u *union) Fields(rank millrace.Rank, microbatch uint32) []string {
	if p := u.of[rank]; p != nil {
		return p.Fields(rank, microbatch)
	}
	return nil
}

// Bytes implements sidecar.Payload.
func (u *union) Bytes() (n int64) {
	for _, p := range u.parts {
		n += p.Bytes()
	}
	return n
}

// Release implements sidecar.Payload.
func (u *union) Release() {
	for _, p := range u.parts {
		p.Release()
	}
}

// lent is a payload that the shelf has.
type lent struct {
	sidecar.Payload
	give func()
	once sync.Once
}

// Release implements sidecar.Payload.
func (l *lent) Release() { l.once.Do(l.give) }

package tier

import (
	"fmt"
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
				n += 4 * int64(t.Len())
			}
		}
	}
	return n
}

// union implements sidecar.Payload with the payloads of different ranks.
type union struct {
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
	p := u.of[rank]
	if p == nil {
		return nil, fmt.Errorf("the tokens of data-parallel rank %d were not fetched", rank)
	}
	return p.Tokens(rank, microbatch)
}

// Masked implements sidecar.Payload.
func (u *union) Masked(rank millrace.Rank, microbatch uint32) []bool {
	return u.of[rank].Masked(rank, microbatch)
}

// Fields implements sidecar.Payload.
func (u *union) Fields(rank millrace.Rank, microbatch uint32) []string {
	return u.of[rank].Fields(rank, microbatch)
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

package link

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"millrace"
	"millrace/proto"
	"millrace/sidecar/link/reply"
)

// payload holds the tokens of one step for some ranks, by index into the plan's assignments. During the fetch, each
// stripe's rows own the entries of their stripe.
type payload struct {
	decoder *reply.Decoder
	plan    *millrace.Plan
	tokens  [][]uint32
	masked  []bool            // by assignment; nil: none is
	starts  map[[2]uint32]int // (rank, microbatch): index of its first assignment
}

// Tokens implements sidecar.Payload.
func (p *payload) Tokens(rank millrace.Rank, microbatch uint32) ([][]uint32, error) {
	part := p.plan.Part(rank, microbatch)
	at := p.starts[[2]uint32{uint32(rank), microbatch}]
	if at+len(part) > len(p.tokens) {
		return nil, fmt.Errorf("payload of step %d has been released", p.plan.Step)
	}
	return p.tokens[at : at+len(part)], nil
}

// Masked implements sidecar.Payload.
func (p *payload) Masked(rank millrace.Rank, microbatch uint32) []bool {
	if p.masked == nil {
		return nil
	}
	part := p.plan.Part(rank, microbatch)
	at := p.starts[[2]uint32{uint32(rank), microbatch}]
	return p.masked[at : at+len(part)]
}

// Release implements sidecar.Payload.
func (p *payload) Release() { p.tokens = nil }

// take decodes one reply to a request for the assignments at indices, and gives each row to keep. It refuses a row that
// was not requested and a row of another length. Such an error is final.
func (p *payload) take(raw []byte, indices []int, keep func(i int, tokens []uint32) error) error {
	return p.decoder.Rows(raw, func(row uint32, tokens []uint32) error {
		if uint64(row) >= uint64(len(indices)) {
			return millrace.Errorf(millrace.ErrMismatch, "row %d of %d", row, len(indices))
		}
		a := &p.plan.Assignments[indices[row]]
		want := uint64(a.Length)
		if a.More {
			want++
		}
		if uint64(len(tokens)) != want {
			return millrace.Errorf(millrace.ErrMismatch,
				"%d tokens came for source %d, ordinal %d, offset %d; the plan has %d", len(tokens), a.Source,
				a.Ordinal, a.Offset, want)
		}
		return keep(indices[row], tokens)
	})
}

// rows are the segments that one stripe gives to a step. A row may come from several loaders. Its first copy counts,
// and each later copy must be equal.
type rows struct {
	payload *payload
	source  string
	indices []int  // into the plan's assignments
	dump    string // directory for different copies; empty: they are not written
	log     *slog.Logger
	bad     map[uint64]finding // by ordinal: documents that could not be decoded

	mu   sync.Mutex     // guards the payload's tokens of indices, and from
	from map[int]string // name of the loader that sent a row
}

// finding is a document that could not be decoded.
type finding struct {
	sample *proto.Quarantine
	twice  bool // two readings could not decode it
}

// todo lists the rows that are missing, by the action that they need.
type todo struct {
	plain []int // ask
	again []int // one reading failed: ask for another
	lost  []int // two readings failed: have them masked
}

// due returns the rows of the first action that is due.
func (t todo) due() []int {
	switch {
	case len(t.plain) > 0:
		return t.plain
	case len(t.again) > 0:
		return t.again
	}
	return t.lost
}

// missing lists the rows that are neither here nor masked.
func (r *rows) missing(m *masks) (t todo) {
	m.Lock()
	defer m.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.indices {
		a := &r.payload.plan.Assignments[i]
		if r.payload.tokens[i] != nil || m.hides(r.source, a) {
			continue
		}
		switch f, bad := r.bad[uint64(a.Ordinal)]; {
		case !bad:
			t.plain = append(t.plain, i)
		case !f.twice:
			t.again = append(t.again, i)
		default:
			t.lost = append(t.lost, i)
		}
	}
	return t
}

// complete returns an error if one of the rows is missing after a loader's last reply.
func (r *rows) complete(asked []int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range asked {
		if r.payload.tokens[i] == nil {
			return fmt.Errorf("it left out a requested row (ordinal %d)",
				r.payload.plan.Assignments[i].Ordinal)
		}
	}
	return nil
}

// convict notes documents that could not be decoded. It reports whether one of the rows belongs to such a document.
func (r *rows) convict(samples []*proto.Quarantine) (isOurs bool) {
	for _, q := range samples {
		_, before := r.bad[q.Ordinal]
		r.bad[q.Ordinal] = finding{sample: q, twice: before}
		isOurs = isOurs || slices.ContainsFunc(r.indices, func(i int) bool {
			return uint64(r.payload.plan.Assignments[i].Ordinal) == q.Ordinal
		})
	}
	return isOurs
}

// file stores one row. If a later copy differs from the first, the error ends the run. If ctx, the request's context,
// has ended, file drops the row.
func (r *rows) file(ctx context.Context, from string, i int, tokens []uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	first := r.payload.tokens[i]
	if first == nil {
		if tokens == nil {
			tokens = []uint32{} // nil marks a missing row
		}
		r.payload.tokens[i], r.from[i] = tokens, from
		return nil
	}
	for k := range first {
		if first[k] != tokens[k] {
			return r.differ(&r.payload.plan.Assignments[i], r.from[i], first, from, tokens)
		}
	}
	return nil
}

// copies is the file that differ writes.
type copies struct {
	Source  string              `json:"source"`
	Attempt uint32              `json:"attempt"`
	Step    uint64              `json:"step"`
	Ordinal uint64              `json:"ordinal"`
	Offset  uint32              `json:"offset"`
	Tokens  map[string][]uint32 `json:"tokens"` // by loader
}

// differ writes two different copies of a row to a file, for diagnosis. It returns the error that ends the run.
func (r *rows) differ(a *millrace.Assignment, first string, was []uint32, second string, is []uint32) error {
	where := "no file"
	if r.dump != "" {
		name := strings.ReplaceAll(r.source, string(filepath.Separator), "_")
		where = filepath.Join(r.dump, fmt.Sprintf("differs-%s-%d-%d.json", name, a.Ordinal, a.Offset))
		text, err := json.Marshal(copies{
			Source: r.source, Attempt: uint32(r.payload.plan.Attempt), Step: uint64(r.payload.plan.Step),
			Ordinal: uint64(a.Ordinal), Offset: a.Offset, Tokens: map[string][]uint32{first: was, second: is},
		})
		if err == nil {
			err = os.WriteFile(where, text, 0o644)
		}
		if err != nil {
			r.log.Error("write two different copies of a segment", "file", where, "error", err)
		}
	}
	return millrace.Errorf(millrace.ErrMismatch,
		"source %s, ordinal %d, offset %d: %s and %s sent different tokens, which must never happen; report it with %s",
		r.source, a.Ordinal, a.Offset, first, second, where)
}

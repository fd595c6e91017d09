package link

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace"
	"millrace/constructors"
	"millrace/internal/arena"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
	"millrace/sidecar"
	"millrace/sidecar/link/watch"
)

// suppliers are the parts of a Link that fetch rows. All fetches share them.
type suppliers struct {
	clock  seam.Clock
	fail   *failpoint.Set
	up     *uplink
	dir    *directory
	conns  *connections
	watch  *watch.Watcher
	masks  *masks
	waits  *waits
	pool   *arena.Pool
	dump   dump
	places *places
}

// Fetch implements sidecar.Fetcher: it gets the tokens of a step for some data-parallel ranks, from all sources and
// stripes at once. Its error is the context's or final: another try would end with the same error.
func (s *suppliers) Fetch(ctx context.Context, plan *millrace.Plan, ranks []millrace.Rank) (sidecar.Payload, error) {
	p := &payload{plan: plan, tokens: make([]constructors.Tokens, len(plan.Assignments)), starts: map[[2]uint32]int{}}
	sources := s.dir.sourceNames()
	wanted := make([][]int, len(sources))
	for i := len(plan.Assignments) - 1; i >= 0; i-- {
		a := &plan.Assignments[i]
		p.starts[[2]uint32{uint32(a.Rank), a.Microbatch}] = i
		if !slices.Contains(ranks, a.Rank) {
			continue
		}
		if int(a.Source) >= len(sources) {
			return nil, millrace.Errorf(millrace.ErrMismatch, "a plan names source %d, the run has %d", a.Source,
				len(sources))
		}
		wanted[a.Source] = append(wanted[a.Source], i)
	}
	for _, indices := range wanted {
		slices.SortFunc(indices, func(i, j int) int {
			a, b := &plan.Assignments[i], &plan.Assignments[j]
			return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Offset, b.Offset))
		})
	}
	if err := s.gather(ctx, p, wanted); err != nil {
		p.Release()
		return nil, err
	}
	s.settle(p, wanted)
	return p, nil
}

// settle marks the masked segments and drops their tokens. A mask holds on every host, even if this host could read the
// segment.
func (s *suppliers) settle(p *payload, wanted [][]int) {
	sources := s.dir.sourceNames()
	s.masks.Lock()
	defer s.masks.Unlock()
	if len(s.masks.masked) == 0 {
		return
	}
	for source, indices := range wanted {
		for _, i := range indices {
			if !s.masks.hides(sources[source].Name, &p.plan.Assignments[i]) {
				continue
			}
			if p.masked == nil {
				p.masked = make([]bool, len(p.tokens))
			}
			p.masked[i], p.tokens[i] = true, constructors.Tokens{}
			p.setFields(i, "")
		}
	}
}

// payload holds the tokens of one step for some ranks, by index into the plan's assignments. During the fetch it
// belongs to the gathering.
type payload struct {
	plan   *millrace.Plan
	tokens []constructors.Tokens // none: the row is missing
	fields []string              // by assignment: passed-through fields, a JSON object; nil: none has any
	masked []bool                // by assignment; nil: none is
	starts map[[2]uint32]int     // (rank, microbatch): index of its first assignment
	calls  []*call               // the requests of the fetch, whose arenas hold tokens
}

// Tokens implements sidecar.Payload.
func (p *payload) Tokens(rank millrace.Rank, microbatch uint32) ([]constructors.Tokens, error) {
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

// setFields sets the fields of an assignment.
func (p *payload) setFields(i int, fields string) {
	if fields == "" && p.fields == nil {
		return
	}
	if p.fields == nil {
		p.fields = make([]string, len(p.tokens))
	}
	p.fields[i] = fields
}

// Fields implements sidecar.Payload.
func (p *payload) Fields(rank millrace.Rank, microbatch uint32) []string {
	if p.fields == nil {
		return nil
	}
	part := p.plan.Part(rank, microbatch)
	at := p.starts[[2]uint32{uint32(rank), microbatch}]
	return p.fields[at : at+len(part)]
}

// Bytes implements sidecar.Payload.
func (p *payload) Bytes() (bytes int64) {
	for _, fields := range p.fields {
		bytes += int64(len(fields))
	}
	for _, c := range p.calls {
		bytes += 4*int64(len(c.tokens)) + c.kept
	}
	return bytes
}

// Release implements sidecar.Payload. The arenas of requests whose loader has sent everything are used again. The
// others are not: their loaders may still write to them.
func (p *payload) Release() {
	for _, c := range p.calls {
		if c.lease != nil {
			c.lease.Return(!c.isComplete)
		}
	}
	p.tokens, p.fields, p.calls = nil, nil, nil
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

// dump writes files for diagnosis.
type dump struct {
	dir string // empty: it writes none
	log *slog.Logger
}

// differ writes two different copies of a row to a file. It returns the error that ends the run.
func (d dump) differ(p *millrace.Plan, i int, source, first string, was []uint32, second string, is []uint32) error {
	a, where := &p.Assignments[i], "no file"
	if d.dir != "" {
		name := strings.ReplaceAll(source, string(filepath.Separator), "_")
		where = filepath.Join(d.dir, fmt.Sprintf("differs-%s-%d-%d.json", name, a.Ordinal, a.Offset))
		text, err := json.Marshal(copies{
			Source: source, Attempt: uint32(p.Attempt), Step: uint64(p.Step),
			Ordinal: uint64(a.Ordinal), Offset: a.Offset, Tokens: map[string][]uint32{first: was, second: is},
		})
		if err == nil {
			err = os.WriteFile(where, text, 0o644)
		}
		if err != nil {
			d.log.Error("write two different copies of a segment", "file", where, "error", err)
		}
	}
	return millrace.Errorf(millrace.ErrMismatch,
		"source %s, ordinal %d, offset %d: %s and %s sent different tokens, which must never happen; report it with %s",
		source, a.Ordinal, a.Offset, first, second, where)
}

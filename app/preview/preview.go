// Package preview shows a batch as text: the rank's part of a step, with the documents in its rows.
package preview

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"millrace"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/plan"
	"millrace/app/report"
	"millrace/internal/tokenid"
	"millrace/text/tokenize"
)

// Batch is a rank's part of a step. Scripts read the JSON names.
type Batch struct {
	Step         uint64       `json:"step"`
	Rank         int          `json:"rank"`
	Ranks        int          `json:"ranks"`
	Content      string       `json:"content_digest"`
	Placement    string       `json:"placement_digest"`
	Of           uint32       `json:"num_microbatches"`
	Microbatches []Microbatch `json:"microbatches"`
	// Sources has the tokens of each source in these microbatches.
	Sources map[string]*Source `json:"sources"`
}

// Source counts the tokens of a source in a batch.
type Source struct {
	Tokens  uint64 `json:"tokens"`
	Trained uint64 `json:"trained_tokens"` // labels that are in the loss
}

// Microbatch is one microbatch of a rank.
type Microbatch struct {
	Microbatch uint32    `json:"microbatch"`
	Digest     string    `json:"digest"`
	Tensors    []Tensor  `json:"tensors"`
	Segments   []Segment `json:"segments"`
}

// Tensor describes a tensor of a microbatch.
type Tensor struct {
	Name  string `json:"name"`
	Dtype string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// Segment is a segment with its text or its tokens.
type Segment struct {
	report.Segment
	Trained uint32          `json:"trained_tokens"` // labels that are in the loss
	Text    *string         `json:"text,omitempty"`
	Tokens  []uint32        `json:"tokens,omitempty"`
	Fields  json.RawMessage `json:"fields,omitempty"` // passed-through ones of the record
}

// Preview is a batch to show.
type Preview struct {
	Mixture, Stream string
	Step            int64
	Rank, Ranks     int
	Microbatch      int  // -1: all of the step
	Full            bool // whole texts
	Progress        func(what string, done, total int64)
	Err             io.Writer // for all reasons of a failure but the last

	config *config.Config
}

// Run plans and builds the batch.
func (p *Preview) Run(ctx context.Context) (batch *Batch, err error) {
	if err := p.load(); err != nil {
		return nil, err
	}
	steps := &plan.Steps{From: uint64(p.Step), To: uint64(p.Step) + 1, Ranks: p.Ranks, Name: "preview",
		Progress: p.Progress, Err: p.Err}
	err = steps.Walk(ctx, p.config,
		func(ctx context.Context, walk *dryrun.Walk, ms []*millrace.Manifest, s *dryrun.Step) (err error) {
			if n := s.Plan.Microbatches; p.Microbatch >= int(n) {
				return usage("--microbatch %d: each rank has 0 to %d in step %d", p.Microbatch, n-1, p.Step)
			}
			batch, err = p.build(ctx, walk, ms, s)
			return exit.Failure(err)
		},
		func(steps uint64) error { return usage("--step %d: the run has %d steps", p.Step, steps) })
	return batch, err
}

// load reads the mixture file, and refuses numbers that it has not.
func (p *Preview) load() (err error) {
	switch {
	case p.Step < 0 || p.Step > 1<<53:
		return usage("--step %d: want a step, from 0", p.Step)
	case p.Ranks < 1:
		return usage("--ranks %d: want at least 1", p.Ranks)
	case p.Microbatch < -1:
		return usage("--microbatch %d: want a microbatch, from 0", p.Microbatch)
	}
	if p.config, err = config.LoadStream(p.Mixture, p.Stream); err != nil {
		return err
	}
	if err := p.config.Payload(); err != nil {
		return err
	}
	if _, err := p.config.Topology(p.Ranks); err != nil {
		return err
	}
	if p.Rank < 0 || p.Rank >= p.Ranks {
		return usage("--rank %d: with --ranks %d the ranks are 0 to %d", p.Rank, p.Ranks, p.Ranks-1)
	}
	return nil
}

func usage(format string, args ...any) error {
	return exit.Usagef("millrace preview: "+format, args...)
}

// build builds the rank's part of a step. Manifests are those of the sources.
func (p *Preview) build(
	ctx context.Context, walk *dryrun.Walk, ms []*millrace.Manifest, s *dryrun.Step,
) (*Batch, error) {
	out := &Batch{
		Step:      uint64(s.Step),
		Rank:      p.Rank,
		Ranks:     p.Ranks,
		Content:   s.Plan.Content.String(),
		Placement: s.Plan.Placement.String(),
		Of:        s.Plan.Microbatches,
		Sources:   map[string]*Source{},
	}
	for m := range s.Plan.Microbatches {
		if p.Microbatch >= 0 && int(m) != p.Microbatch {
			continue
		}
		b, err := walk.Build(ctx, millrace.Rank(p.Rank), m)
		if err != nil {
			return nil, err
		}
		view := Microbatch{Microbatch: m, Digest: b.Digest, Segments: []Segment{}}
		for _, t := range b.Tensors {
			view.Tensors = append(view.Tensors, Tensor{t.Name, t.Dtype, append([]int{}, t.Shape...)})
		}
		for i := range b.Segments {
			a := &b.Segments[i]
			labels := *a
			labels.Untrained = tokenid.CountUntrained(b.Tokens[i][1:])
			seg := Segment{Segment: report.NewSegment(a, ms), Trained: labels.Labels()}
			p.content(&seg, walk.Encoding(), b.Tokens[i][:a.Length])
			seg.Fields = json.RawMessage(b.Fields[i])
			out.add(&seg)
			view.Segments = append(view.Segments, seg)
		}
		out.Microbatches = append(out.Microbatches, view)
	}
	return out, nil
}

// add counts a segment.
func (b *Batch) add(seg *Segment) {
	of := b.Sources[seg.Source]
	if of == nil {
		of = &Source{}
		b.Sources[seg.Source] = of
	}
	of.Tokens, of.Trained = of.Tokens+uint64(seg.Length), of.Trained+uint64(seg.Trained)
}

// The parts of a long text, or of many tokens, that are shown.
const (
	shownRunes  = 60
	shownTokens = 12
)

// content fills in a segment's text, or its tokens.
func (p *Preview) content(seg *Segment, encoding *tokenize.Encoding, tokens []uint32) {
	src, _ := p.config.Source(seg.Source)
	if src != nil && src.HoldsText() && encoding != nil {
		text, err := decode(encoding, tokens)
		if err == nil {
			s := strings.ToValidUTF8(string(text), "\ufffd")
			if !p.Full {
				s = shorten(s)
			}
			seg.Text = &s
			return
		}
	}
	if !p.Full {
		tokens = tokens[:min(len(tokens), shownTokens)]
	}
	seg.Tokens = make([]uint32, len(tokens))
	for i, id := range tokens {
		seg.Tokens[i] = id &^ tokenid.Untrained
	}
}

// decode returns the text of tokens. Untrained ones are in ⟦brackets⟧.
func decode(encoding *tokenize.Encoding, tokens []uint32) (text []byte, err error) {
	var ids []uint32
	for len(tokens) > 0 && err == nil {
		untrained, n := tokens[0]&tokenid.Untrained, 0
		for n < len(tokens) && tokens[n]&tokenid.Untrained == untrained {
			n++
		}
		ids = ids[:0]
		for _, id := range tokens[:n] {
			ids = append(ids, id&^tokenid.Untrained)
		}
		if untrained != 0 {
			text = append(text, "⟦"...)
		}
		if text, err = encoding.Decode(text, ids); untrained != 0 {
			text = append(text, "⟧"...)
		}
		tokens = tokens[n:]
	}
	return text, err
}

// shorten keeps both ends of a text.
func shorten(s string) string {
	r := []rune(s)
	if len(r) <= 2*shownRunes+1 {
		return s
	}
	return string(r[:shownRunes]) + "…" + string(r[len(r)-shownRunes:])
}

// Print writes a batch for people.
func (p *Preview) Print(w io.Writer, b *Batch) {
	fmt.Fprintf(
		w, "step %d, rank %d of %d, content %s, placement %s\n", b.Step, b.Rank, b.Ranks, b.Content, b.Placement,
	)
	for _, m := range b.Microbatches {
		fmt.Fprintf(w, "\nmicrobatch %d of %d, digest %s\n", m.Microbatch, b.Of, m.Digest)
		for _, t := range m.Tensors {
			fmt.Fprintf(w, "  %s %s %v", t.Name, t.Dtype, t.Shape)
		}
		fmt.Fprintln(w)
		last := -1
		for _, s := range m.Segments {
			if int(s.Row) != last {
				last = int(s.Row)
				fmt.Fprintf(w, "row %d\n", s.Row)
			}
			fmt.Fprintf(
				w, "  columns %d…%d: %s %s, tokens %d…%d (epoch %d, ordinal %d)\n", s.Start, s.Start+s.Length, s.Source,
				s.ID, s.Offset, s.Offset+s.Length, s.Epoch, s.Ordinal,
			)
			if len(s.Fields) > 0 {
				fmt.Fprintf(w, "    fields %s\n", s.Fields)
			}
			if s.Text != nil {
				fmt.Fprintf(w, "    %q\n", *s.Text)
			} else if len(s.Tokens) < int(s.Length) {
				fmt.Fprintf(w, "    %v … and %d more\n", s.Tokens, int(s.Length)-len(s.Tokens))
			} else {
				fmt.Fprintf(w, "    %v\n", s.Tokens)
			}
		}
		if len(m.Segments) == 0 {
			fmt.Fprintln(w, "  nothing but padding")
		}
	}
	p.printTrained(w, b)
}

// printTrained prints how many tokens are trained on, of sources that leave some out.
func (p *Preview) printTrained(w io.Writer, b *Batch) {
	for _, name := range report.Names(b.Sources) {
		if src, _ := p.config.Source(name); src != nil && src.HasUntrained() {
			s := b.Sources[name]
			fmt.Fprintf(
				w, "\n%s: %s of %s tokens are trained on", name, report.Count(s.Trained), report.Count(s.Tokens),
			)
		}
	}
	if p.config.Sources.HaveUntrained() {
		fmt.Fprintln(w)
	}
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/internal/tokenid"
	"millrace/text/tokenize"
)

// preview is the flags of `millrace preview`.
type preview struct {
	stream                  string
	step                    int64
	rank, ranks, microbatch int
	full, json              bool
	cfg                     *config.Config
	encoding                *tokenize.Encoding
}

func previewCommand() *cobra.Command {
	p := &preview{}
	c := &cobra.Command{
		Use:   "preview MIXTURE --step K --rank R",
		Short: "Print a batch as text",
		Long: `Print the batch of a trainer rank in a step as text: its rows, the documents in them and their text.

preview shortens long texts in the middle; --full prints them whole. It prints the tokens of sources that hold tokens.
Text that is not trained on stands in ⟦brackets⟧.`,
		Example: "  millrace preview mixture.yaml --step 0 --rank 0\n  millrace preview mixture.yaml --step 100 " +
			"--rank 3 --ranks 8 --microbatch 0 --json",
		Args: exactArgs(1, "one mixture file"),
		RunE: func(c *cobra.Command, args []string) error { return p.run(c, args[0]) },
	}
	f := c.Flags()
	f.Int64Var(&p.step, "step", 0, "step, from 0")
	f.IntVar(&p.rank, "rank", 0, "trainer rank, from 0; ranks count along tp, cp, dp, pp")
	f.IntVar(&p.ranks, "ranks", 1, "trainer ranks")
	f.IntVar(&p.microbatch, "microbatch", -1, "one microbatch, from 0 (default: all of the step)")
	streamFlag(f, &p.stream)
	f.BoolVar(&p.full, "full", false, "print whole texts")
	f.BoolVar(&p.json, "json", false, "print one JSON object")
	return c
}

func (p *preview) run(c *cobra.Command, mixture string) error {
	usage := func(format string, args ...any) error {
		return exit.Usagef("millrace preview: "+format, args...)
	}
	switch {
	case p.step < 0 || p.step > 1<<53:
		return usage("--step %d: want a step, from 0", p.step)
	case p.ranks < 1:
		return usage("--ranks %d: want at least 1", p.ranks)
	}
	var err error
	if p.cfg, err = loadStream(mixture, p.stream); err != nil {
		return err
	}
	if err = p.cfg.Payload(); err != nil {
		return err
	}
	if _, err = p.cfg.Topology(p.ranks); err != nil {
		return err
	}
	if p.rank < 0 || p.rank >= p.ranks {
		return usage("--rank %d: with --ranks %d the ranks are 0 to %d", p.rank, p.ranks, p.ranks-1)
	}
	if p.microbatch < -1 {
		return usage("--microbatch %d: want a microbatch, from 0", p.microbatch)
	}
	return page(c, func(w *bufio.Writer) error {
		r := &planned{from: uint64(p.step), to: uint64(p.step) + 1, ranks: p.ranks}
		r.show = func(ctx context.Context, walk *dryrun.Walk, s *dryrun.Step) error {
			if n := s.Plan.Microbatches; p.microbatch >= int(n) {
				return usage("--microbatch %d: each rank has 0 to %d in step %d", p.microbatch, n-1, p.step)
			}
			p.encoding = walk.Encoding()
			out, err := p.build(ctx, walk, r.manifests, s)
			if err != nil {
				return exit.Failure(err)
			}
			if p.json {
				return report.Encode(w, out)
			}
			p.print(w, out)
			return nil
		}
		r.ended = func(steps uint64) error { return usage("--step %d: the run has %d steps", p.step, steps) }
		return r.run(c, p.cfg)
	})
}

// batchView is a rank's part of a step. Scripts read the JSON names.
type batchView struct {
	Step         uint64      `json:"step"`
	Rank         int         `json:"rank"`
	Ranks        int         `json:"ranks"`
	Content      string      `json:"content_digest"`
	Placement    string      `json:"placement_digest"`
	Of           uint32      `json:"num_microbatches"`
	Microbatches []microView `json:"microbatches"`
	// Sources has the tokens of each source in these microbatches.
	Sources map[string]*sourceView `json:"sources"`
}

type sourceView struct {
	Tokens  uint64 `json:"tokens"`
	Trained uint64 `json:"trained_tokens"` // labels that are in the loss
}

type microView struct {
	Microbatch uint32        `json:"microbatch"`
	Digest     string        `json:"digest"`
	Tensors    []tensorView  `json:"tensors"`
	Segments   []segmentView `json:"segments"`
}

type tensorView struct {
	Name  string `json:"name"`
	Dtype string `json:"dtype"`
	Shape []int  `json:"shape"`
}

type segmentView struct {
	report.Segment
	Trained uint32          `json:"trained_tokens"` // labels that are in the loss
	Text    *string         `json:"text,omitempty"`
	Tokens  []uint32        `json:"tokens,omitempty"`
	Fields  json.RawMessage `json:"fields,omitempty"` // passed-through ones of the record
}

func (p *preview) build(
	ctx context.Context, walk *dryrun.Walk, ms []*millrace.Manifest, s *dryrun.Step,
) (*batchView, error) {
	out := &batchView{
		Step:      uint64(s.Step),
		Rank:      p.rank,
		Ranks:     p.ranks,
		Content:   s.Plan.Content.String(),
		Placement: s.Plan.Placement.String(),
		Of:        s.Plan.Microbatches,
		Sources:   map[string]*sourceView{},
	}
	for m := range s.Plan.Microbatches {
		if p.microbatch >= 0 && int(m) != p.microbatch {
			continue
		}
		b, err := walk.Build(ctx, millrace.Rank(p.rank), m)
		if err != nil {
			return nil, err
		}
		view := microView{Microbatch: m, Digest: b.Digest, Segments: []segmentView{}}
		for _, t := range b.Tensors {
			view.Tensors = append(view.Tensors, tensorView{t.Name, t.Dtype, append([]int{}, t.Shape...)})
		}
		for i := range b.Segments {
			a := &b.Segments[i]
			labels := *a
			labels.Untrained = tokenid.CountUntrained(b.Tokens[i][1:])
			seg := segmentView{Segment: report.NewSegment(a, ms), Trained: labels.Labels()}
			p.content(&seg, b.Tokens[i][:a.Length])
			seg.Fields = json.RawMessage(b.Fields[i])
			out.add(&seg)
			view.Segments = append(view.Segments, seg)
		}
		out.Microbatches = append(out.Microbatches, view)
	}
	return out, nil
}

// add counts a segment.
func (b *batchView) add(seg *segmentView) {
	of := b.Sources[seg.Source]
	if of == nil {
		of = &sourceView{}
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
func (p *preview) content(seg *segmentView, tokens []uint32) {
	src, _ := p.cfg.Source(seg.Source)
	if src != nil && src.HoldsText() && p.encoding != nil {
		text, err := p.text(tokens)
		if err == nil {
			s := strings.ToValidUTF8(string(text), "\ufffd")
			if !p.full {
				s = shorten(s)
			}
			seg.Text = &s
			return
		}
	}
	if !p.full {
		tokens = tokens[:min(len(tokens), shownTokens)]
	}
	seg.Tokens = make([]uint32, len(tokens))
	for i, id := range tokens {
		seg.Tokens[i] = id &^ tokenid.Untrained
	}
}

// text decodes tokens. Untrained ones stand in ⟦brackets⟧.
func (p *preview) text(tokens []uint32) (text []byte, err error) {
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
		if text, err = p.encoding.Decode(text, ids); untrained != 0 {
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

func (p *preview) print(w io.Writer, b *batchView) {
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
func (p *preview) printTrained(w io.Writer, b *batchView) {
	for _, name := range report.Names(b.Sources) {
		if src, _ := p.cfg.Source(name); src != nil && src.HasUntrained() {
			s := b.Sources[name]
			fmt.Fprintf(
				w, "\n%s: %s of %s tokens are trained on", name, report.Count(s.Trained), report.Count(s.Tokens),
			)
		}
	}
	if p.cfg.Sources.HaveUntrained() {
		fmt.Fprintln(w)
	}
}

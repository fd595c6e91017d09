package dryrun

import (
	"context"
	"errors"
	"fmt"
	"math"

	"millrace"
	"millrace/app/config"
	"millrace/app/setup"
)

// measure returns the size of one pass of every source, in the unit of the mixture. The sizes depend
// on the sources' bytes and on the settings that turn records into documents. The manifests and the identity of a run
// pin both. Problems name sources without a known size, with the cure.
func (out *Opened) measure(ctx context.Context) (sizes []uint64, problems Problems, err error) {
	c := out.Config
	sizes = make([]uint64, len(out.Sources))
	for i, src := range out.Sources {
		st, err := src.Stats(ctx)
		if err != nil {
			return nil, nil, err
		}
		why := ""
		switch {
		case !st.Counted:
			why = fmt.Sprintf("the records of its %d files are not counted", st.Files)
		case (c.Mixture.Unit == millrace.UnitTokens || c.Sources[i].Filter != "" || src.PieceTokens() > 0) &&
			st.Known < st.Records:
			why = fmt.Sprintf("the lengths of %d of its %d records are not known", st.Records-st.Known, st.Records)
		}
		if why != "" {
			problems = append(problems, &Problem{Source: src.Name(), Place: where(c, "mixture"),
				Err: millrace.Errorf(
					millrace.ErrInvalid,
					"weights are derived from its size, and %s: run `millrace index %s --lengths` first, or write "+
						"the weights out",
					why,
					c.File,
				)})
			continue
		}
		sizes[i] = st.Tokens
		if c.Mixture.Unit == millrace.UnitSamples {
			sizes[i] = st.Records - st.Refused - st.Skipped
			if src.PieceTokens() > 0 {
				sizes[i] = st.Pieces
			}
		}
	}
	if len(problems) > 0 {
		return nil, problems, nil
	}
	return sizes, nil, nil
}

// Measure returns the facts about the data of a mixture file that a run needs for its plans and its identity. It reads
// sources only if weights are derived from their sizes.
func Measure(ctx context.Context, c *config.Config, o Options) (config.Facts, error) {
	if !c.Mixture.Derives() {
		e, err := setup.Tokenizer(c)
		return config.Facts{Vocabulary: setup.Vocabulary(e)}, err
	}
	o.Measure = true
	opened, err := Open(ctx, c, o)
	if opened == nil {
		return config.Facts{}, err
	}
	return opened.Facts, errors.Join(err, opened.Close())
}

// LongestReport is the part of a step's tokens that the longest document of a mixture has at most. Consecutive pieces
// give one document the whole share of its source; shuffled pieces meet by chance. It is an estimate from the lengths
// that are known. Scripts rely on its JSON names.
type LongestReport struct {
	Source    string  `json:"source"`
	Tokens    uint32  `json:"tokens"`    // of the document
	Shuffled  bool    `json:"shuffled"`  // the source's pieces are shuffled
	Step      float64 `json:"step"`      // of one step, estimated
	TenSteps  float64 `json:"ten_steps"` // of ten steps in a row, estimated
	Exact     bool    `json:"exact"`     // every length of the mixture is known
	IfSpread  float64 `json:"if_spread"` // Step with `long_documents: shuffle`
	Recommend bool    `json:"recommend"` // shuffle the pieces: consecutive ones are more than a few per cent of a step
}

// mostOfStep is the part of a step from which one document counts as too much.
const mostOfStep = 0.03

// longest estimates the largest part that one document has of a step. It returns nil if no length is known.
func (k *check) longest(ctx context.Context, shares []float64) *LongestReport {
	var best *LongestReport
	exact := true
	in := k.c.AllStages()[0]
	step := float64(in.SequenceLength) * float64(in.GlobalBatchSize)
	piece := 0.0
	for _, s := range k.c.AllStages() {
		piece = max(piece, float64(s.SequenceLength))
	}
	for i, src := range k.opened.Sources {
		st, err := src.Stats(ctx)
		if err != nil || !st.Counted || st.Known < st.Records {
			exact = false
		}
		if err != nil || st.Longest == 0 || shares[i] == 0 {
			continue
		}
		whole := func(steps float64) float64 { return min(float64(st.Longest)/(steps*step), shares[i]) }
		spread := func(steps float64) float64 {
			// The pieces of the document among those that the source gives in these steps: the mean and three
			// deviations.
			mean := float64(st.Longest) / piece * steps * step * shares[i] / max(float64(st.Tokens), 1)
			return min((mean+3*math.Sqrt(mean)+1)*piece/(steps*step), whole(steps))
		}
		r := &LongestReport{
			Source:   src.Name(),
			Tokens:   st.Longest,
			Shuffled: src.PieceTokens() > 0,
			IfSpread: spread(1),
		}
		if r.Step, r.TenSteps = whole(1), whole(10); r.Shuffled {
			r.Step, r.TenSteps = spread(1), spread(10)
		}
		r.Recommend = !r.Shuffled && r.Step > mostOfStep && r.IfSpread < r.Step/2 && src.Global() != nil
		if best == nil || r.Step > best.Step {
			best = r
		}
	}
	if best != nil {
		best.Exact = exact
	}
	return best
}

// tokenShares returns the shares of the sources in tokens at step 0, given the sources' reports.
func (k *check) tokenShares(reports []SourceReport) []float64 {
	out, total := make([]float64, len(reports)), 0.0
	for i, r := range reports {
		out[i] = r.Target
		if k.c.Mixture.Unit == millrace.UnitSamples {
			out[i] *= float64(r.Tokens) / max(float64(r.Records), 1)
		}
		total += out[i]
	}
	if total == 0 {
		return out
	}
	for i := range out {
		out[i] /= total
	}
	return out
}

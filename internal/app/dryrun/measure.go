package dryrun

import (
	"context"
	"errors"
	"fmt"

	"millrace"
	"millrace/internal/app/config"
)

// measure sets in the configuration the size of one pass of every source, in the unit of the mixture. The sizes depend
// on the sources' bytes and on the settings that turn records into documents. The manifests and the identity of a run
// pin both. Problems name sources without a known size, with the cure.
func (out *Opened) measure(ctx context.Context) (Problems, error) {
	c := out.Config
	var problems Problems
	for i, src := range out.Sources {
		st, err := src.Stats(ctx)
		if err != nil {
			return nil, err
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
		c.Sources[i].Size = st.Tokens
		if c.Mixture.Unit == millrace.UnitSamples {
			c.Sources[i].Size = st.Records - st.Refused
			if src.PieceTokens() > 0 {
				c.Sources[i].Size = st.Pieces
			}
		}
	}
	c.Mixture.Measured = len(problems) == 0
	return problems, nil
}

// Measure sets the sizes of the sources in a configuration whose weights are derived from them. Call it before planning
// and before Identity. It does nothing for other mixtures.
func Measure(ctx context.Context, c *config.Config, o Options) error {
	if !c.Mixture.Derives() {
		return nil
	}
	o.Measure = true
	opened, err := Open(ctx, c, o)
	if opened != nil {
		err = errors.Join(err, opened.Close())
	}
	return err
}

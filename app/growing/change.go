package growing

import (
	"errors"
	"log/slog"

	"millrace"
	"millrace/app/config"
	"millrace/orchestrator/facts"
	"millrace/sources/facts/growth"
	"millrace/sources/facts/index"
	"millrace/sources/read/order"
)

// Files compares the files of a source at a state with those of this run. It knows both from the index directory, in
// which every opening of a source keeps its list of files.
func Files(c *config.Config, log *slog.Logger) func(facts.FilesAt) (facts.FilesChange, error) {
	return func(at facts.FilesAt) (facts.FilesChange, error) {
		change, err := Change(c, at, log)
		if err != nil { // a nil *growth.Change is not a nil FilesChange
			return nil, err
		}
		return change, nil
	}
}

// Change is Files for one source.
func Change(c *config.Config, at facts.FilesAt, log *slog.Logger) (_ *growth.Change, err error) {
	store, err := index.Open(c.IndexPath(), index.Options{Log: log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	now := growth.Load(store, at.Source, at.Now, at.Piece)
	if now == nil {
		return nil, millrace.Errorf(millrace.ErrMismatch, "the index directory %s has no list of the files of "+
			"source %s: run `millrace index MIXTURE` on this host", c.IndexPath(), at.Source)
	}
	s, _ := c.Source(at.Source)
	src := at.At
	return growth.NewChange(growth.Change{
		Was:   growth.Load(store, at.Source, at.Was, at.Piece),
		Now:   now,
		Eras:  at.Eras,
		Seed:  order.Seed{Run: c.Seed, Source: at.Source, Epochs: c.Passes(s)},
		Piece: at.Piece,
		At: growth.Place{Ordinal: src.Ordinal, Begun: src.Offset > 0, Epoch: src.Epoch,
			SeekPoint: src.SeekPoint, Waits: at.Waits},
	}, at.Was, store)
}

package look

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/sources/format/registry"
)

// provenBytes bounds the bytes of the first file that are read to prove a source.
const provenBytes = 64 << 20

// prove checks the source over its first file, as `millrace check` does, and returns the first problem; empty: none.
// It leaves out files that would take too long, and formats whose files belong together.
func (s *source) prove(ctx context.Context, tokenizer string) string {
	path := s.first.Path
	if s.files == 1 {
		path = s.path
	} else if !s.standsAlone() {
		return ""
	}
	if most := s.first.mostScanned(); s.first.Bytes > most && s.place.format != "parquet" {
		return ""
	}
	dir, err := os.MkdirTemp("", "millrace-init-")
	if err != nil {
		return "" // only a check is lost
	}
	defer os.RemoveAll(dir)
	c, err := config.Parse("mixture.yaml", []byte(s.alone(path, tokenizer, dir)), ".")
	if err != nil {
		return err.Error()
	}
	o := dryrun.CheckOptions{Ranks: 1, Steps: 1, Budget: provenBytes, Logger: slog.New(slog.DiscardHandler)}
	report, err := dryrun.Check(ctx, c, o)
	var problems dryrun.Problems
	switch {
	case errors.As(err, &problems):
		return problems[0].Error()
	case err != nil:
		return err.Error()
	case len(report.Problems) > 0:
		return report.Problems[0].Reason
	}
	return ""
}

// standsAlone reports whether one file of the format can be read without the others.
func (s *source) standsAlone() bool {
	row := registry.Named(s.place.format)
	return row != nil && row.IsAlone
}

// alone returns a mixture file with the source alone, over one path, with its index in a directory.
func (s *source) alone(path, tokenizer, dir string) string {
	return fmt.Sprintf("version: 1\n%ssequence_length: 2048\nglobal_batch_size: 1\nstop: {steps: 1}\nindex_dir: %q\n"+
		"mixture: {weights: {%s: 1}}\nsources:\n  %s\n", tokenizerLine(tokenizer), filepath.ToSlash(dir), s.name,
		s.lineOf(path))
}

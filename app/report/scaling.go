package report

import (
	"fmt"
	"io"
	"time"

	"millrace/proto"
)

// Scaling is the number of loaders that follows the work. Scripts read its JSON names.
type Scaling struct {
	Wished  uint32 `json:"wished"`
	There   uint32 `json:"there"` // that read a stripe
	Min     uint32 `json:"min"`
	Max     uint32 `json:"max"`
	Why     string `json:"why"`     // the reason of the newest change; empty: none was made
	Changed string `json:"changed"` // when, in RFC 3339; empty: none was made
	Trouble string `json:"trouble"` // why the engine does not take the number; empty: it has
}

func newScaling(s *proto.Scaling) *Scaling {
	if s == nil {
		return nil
	}
	out := &Scaling{Wished: s.Wished, There: s.There, Min: s.Min, Max: s.Max, Why: s.Why, Trouble: s.Trouble}
	if s.Changed != 0 {
		out.Changed = time.UnixMilli(s.Changed).UTC().Format(time.RFC3339)
	}
	return out
}

// print writes a line. A nil Scaling has none.
func (s *Scaling) print(w io.Writer) {
	if s == nil {
		return
	}
	fmt.Fprintf(w, "loaders: %d of %d wished are there, between %d and %d", s.There, s.Wished, s.Min, s.Max)
	if s.Why != "" {
		fmt.Fprintf(w, "; changed at %s: %s", s.Changed, s.Why)
	}
	fmt.Fprintln(w)
}

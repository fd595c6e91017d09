package sources

import (
	"context"
	"errors"

	"millrace"
	"millrace/sources/facts/guard"
)

// Unnamed is a field that a source does not name, or names in vain, and whose values would say that its documents are
// to be trained on otherwise. A source whose records have such a value is refused.
type Unnamed struct {
	Path  string               // dotted path
	Key   string               // the key that names it in vain; "": none does
	Tells func(value any) bool // reports whether a value, which is not nil, says so
	Why   string               // what such a value means for the documents
	Cure  string
}

// The most of a file that is read to find values of unnamed fields.
const (
	unnamedRecords = 100
	unnamedBytes   = 4 << 20 // of raw records
)

// checkUnnamed looks for the fields that the source does not name in the first records of a shard. A file that cannot
// be read is left to those who read it.
func (s *surveyor) checkUnnamed(ctx context.Context, sh millrace.Shard, g *guard.Guard) error {
	if len(s.unnamed) == 0 {
		return nil
	}
	looking := *s.opener
	looking.field = Field{}
	for _, u := range s.unnamed {
		looking.field.Others = append(looking.field.Others, u.Path)
	}
	looking.field.MayLack = looking.field.Others
	o, err := looking.openWith(ctx, sh, g, nil, nil)
	if err != nil {
		return ctx.Err()
	}
	defer o.close()
	if len(lacksOf(o.Shard)) == len(s.unnamed) {
		return nil
	}
	var found error
	done := errors.New("enough records")
	n, size := 0, int64(0)
	what := func() string { return sh.Path }
	_ = Fence(millrace.ErrDamaged, what, func() error {
		return o.Scan(ctx, 0, func(r Record) error {
			if found = s.unnamedIn(sh, &r); found != nil {
				return done
			}
			if n, size = n+1, size+r.Raw; n == unnamedRecords || size >= unnamedBytes {
				return done
			}
			return nil
		})
	})
	if found != nil {
		return found
	}
	return ctx.Err()
}

// unnamedIn returns the error of a record that has a value of an unnamed field, nil if it has none.
func (s *surveyor) unnamedIn(sh millrace.Shard, r *Record) error {
	for i, u := range s.unnamed {
		if i < len(r.Others) && r.Others[i] != nil && u.Tells(r.Others[i]) {
			named := "no key of the source names"
			if u.Key != "" {
				named = "`" + u.Key + "` names in vain"
			}
			return millrace.Errorf(millrace.ErrInvalid, "%s: record %d has the field %q, which %s: %s; %s; or write "+
				"`unused: [%s]` to leave the field out", sh.Path, r.Number, u.Path, named, u.Why, u.Cure, u.Path)
		}
	}
	return nil
}

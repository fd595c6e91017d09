package sources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"millrace"
	"millrace/sources/find"
)

// Constants are the fields that records of one file have by its place. A record's own value comes first.
type Constants []find.Constant

// of returns the constant of a field.
func (c Constants) of(field string) (value any, ok bool) {
	for i := range c {
		if c[i].Name == field {
			return c[i].Value, true
		}
	}
	return nil, false
}

// used returns the constants that a source asks for.
func (c Constants) used(field Field) (out Constants) {
	for _, x := range c {
		if x.Name == field.Text || slices.Contains(field.Others, x.Name) {
			out = append(out, x)
		}
	}
	return out
}

// Open opens a file with a format. Its records have the constants in place of values that they lack.
func (c Constants) Open(ctx context.Context, format Format, f File, field Field, lim Limits, index []byte) (Shard,
	error) {
	c = c.used(field)
	if len(c) == 0 {
		return format.Open(ctx, f, field, lim, index)
	}
	field.MayLack = slices.Clone(field.MayLack)
	for _, x := range c {
		field.MayLack = append(field.MayLack, x.Name)
	}
	inner, err := format.Open(ctx, f, field, lim, index)
	if err != nil {
		return nil, err
	}
	s := &filledShard{Shard: inner, constants: c, others: make([]any, len(field.Others))}
	s.text, _ = c.of(field.Text)
	for i, name := range field.Others {
		s.others[i], _ = c.of(name)
	}
	return s, nil
}

// appendTo appends names and values to the input of a hash.
func (c Constants) appendTo(in []byte) []byte {
	for _, x := range c {
		in = appendText(in, x.Name)
		in = appendText(in, fmt.Sprintf("%T %v", x.Value, x.Value))
	}
	return in
}

// filledShard is a shard whose records have constants. Only formats with fields have such shards.
type filledShard struct {
	Shard
	constants Constants
	text      any   // the constant that is the text; nil: none
	others    []any // the constants among Field.Others; nil: none
}

// Abilities implements Shard.
func (s *filledShard) Abilities() Abilities {
	a := s.Shard.Abilities()
	a.Lacks = s
	return a
}

// Lacks implements Lacking. A field with a constant is not lacked.
func (s *filledShard) Lacks() Lacks {
	return slices.DeleteFunc(slices.Clone(lacksOf(s.Shard)), func(e *LackError) bool {
		_, ok := s.constants.of(e.Field)
		return ok
	})
}

// Scan implements Shard.
func (s *filledShard) Scan(ctx context.Context, from uint64, fn func(Record) error) error {
	return s.Shard.Scan(ctx, from, s.filling(fn))
}

// Read implements Shard.
func (s *filledShard) Read(ctx context.Context, numbers []uint64, fn func(Record) error) error {
	return s.Shard.Read(ctx, numbers, s.filling(fn))
}

// filling returns fn for records without the constants.
func (s *filledShard) filling(fn func(Record) error) func(Record) error {
	values := make([]any, len(s.others))
	return func(r Record) error {
		s.fill(&r, values)
		return fn(r)
	}
}

// fill sets the constants in a record that lacks them. values is the memory of its others.
func (s *filledShard) fill(r *Record, values []any) {
	var missing *MissingError
	isMissing := errors.As(r.Err, &missing)
	if r.Err != nil && !isMissing {
		return
	}
	if len(r.Others) == len(values) {
		copy(values, r.Others) // the format may use its own again
		r.Others = values
		for i, v := range values {
			if _, lacks := v.(*MissingError); s.others[i] != nil && (lacks || v == nil) {
				values[i] = s.others[i]
			}
		}
	}
	if !isMissing || s.text == nil {
		return
	}
	if text, ok := s.text.(string); ok {
		r.Text, r.Err = []byte(text), nil
		return
	}
	r.Others, r.Err = nil, millrace.Errorf(millrace.ErrBadSample, "field %q is %v by the place of the file, not a text",
		missing.Field, s.text)
}

// constantsOf returns the constants that a source asks for, by the names of its files; nil: none.
func constantsOf(files []find.File, field Field) map[string]Constants {
	var out map[string]Constants
	var last []find.Constant
	var used Constants
	for _, file := range files {
		if len(file.Constants) == 0 {
			continue
		}
		if len(last) != len(file.Constants) || &last[0] != &file.Constants[0] { // files of one folder share them
			last, used = file.Constants, Constants(file.Constants).used(field)
		}
		if len(used) == 0 {
			continue
		}
		if out == nil {
			out = make(map[string]Constants, len(files))
		}
		out[file.Name] = used
	}
	return out
}

// namesOf returns the names of all constants with the kinds of their values, sorted, each once.
func namesOf(constants map[string]Constants) []string {
	seen := map[string]bool{}
	for _, all := range constants {
		for _, c := range all {
			if c.Value != nil { // a null is as none
				seen[fmt.Sprintf("%s %T", c.Name, c.Value)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// contentKey returns the key of kept facts about a shard's documents and answers: its digest, with the constants that
// they may follow from. Files of equal bytes have one digest, in any directory.
func (op *opener) contentKey(sh *millrace.Shard) millrace.Digest {
	constants := op.constants[sh.Name]
	if len(constants) == 0 {
		return sh.Digest
	}
	return digest128(constants.appendTo(append([]byte("millrace constants 1"), sh.Digest[:]...)))
}

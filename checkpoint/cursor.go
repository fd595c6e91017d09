package checkpoint

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// cursor walks keys in order. Every step into Pebble is behind the fence, but what the caller does between two steps is not.
type cursor struct {
	s     *Store
	it    *pebble.Iterator
	begun bool
	err   error
}

// scan walks [lower, upper); nil is no bound. The cursor must be closed.
func (s *Store) scan(lower, upper []byte) *cursor {
	c := &cursor{s: s}
	c.err = fence("read", s.dir, func() (err error) {
		c.it, err = s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		return err
	})
	return c
}

// scanTag walks all keys of one kind.
func (s *Store) scanTag(tag byte) *cursor { return s.scan([]byte{tag}, []byte{tag + 1}) }

func (c *cursor) next() bool {
	return c.step(func() bool {
		if c.begun {
			return c.it.Next()
		}
		return c.it.First()
	})
}

func (c *cursor) last() bool { return c.step(func() bool { return c.it.Last() }) }

func (c *cursor) step(move func() bool) (ok bool) {
	if c.err != nil {
		return false
	}
	c.err = fence("read", c.s.dir, func() error {
		ok = move()
		c.begun = true
		return c.it.Error()
	})
	return ok && c.err == nil
}

// key and value are valid until the next step; neither may be called before one has returned true.
func (c *cursor) key() []byte { return c.it.Key() }

func (c *cursor) value() (v []byte) {
	err := fence("read", c.s.dir, func() (err error) {
		v, err = c.it.ValueAndErr()
		return err
	})
	c.err = errors.Join(c.err, err)
	return v
}

// close returns the first error met on the way.
func (c *cursor) close() error {
	if c.it == nil {
		return c.err
	}
	err := fence("read", c.s.dir, c.it.Close)
	if c.err != nil {
		return c.err // Pebble repeats it at the close
	}
	return err
}

// get returns a copy of the value at key, nil if there is none.
func (s *Store) get(key []byte) (value []byte, err error) {
	err = fence("read", s.dir, func() error {
		v, closer, err := s.db.Get(key)
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		value = append(make([]byte, 0, len(v)), v...)
		return closer.Close()
	})
	return value, err
}

package checkpoint

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// database is Pebble with its errors and panics turned into the classes of this package.
type database struct {
	dir    string
	pebble *pebble.DB
}

// get returns a copy of the value at key, nil if there is none.
func (d *database) get(key []byte) (value []byte, err error) {
	err = catch("read", d.dir, func() error {
		v, closer, err := d.pebble.Get(key)
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

// apply makes a batch durable and closes it.
func (d *database) apply(act string, b *pebble.Batch) error {
	return catch(act, d.dir, func() error { return errors.Join(d.pebble.Apply(b, pebble.Sync), b.Close()) })
}

// edge returns the index of the first or last key of one kind.
func (d *database) edge(tag byte, seek func(*cursor) bool) (index uint64, ok bool, err error) {
	c := d.scanTag(tag)
	if seek(c) {
		if index, ok = parseIndexKey(c.key()); !ok {
			c.err = corrupt(d.dir, "a key", fmt.Sprintf("%x is no key of this store", c.key()))
		}
	}
	return index, ok, c.close()
}

// cursor walks keys in order. It catches only the panics of Pebble.
type cursor struct {
	db    *database
	it    *pebble.Iterator
	begun bool
	err   error
}

// scan walks the keys in [lower, upper); nil is no bound. The cursor must be closed.
func (d *database) scan(lower, upper []byte) *cursor {
	c := &cursor{db: d}
	c.err = catch("read", d.dir, func() (err error) {
		c.it, err = d.pebble.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		return err
	})
	return c
}

// scanTag walks all keys of one kind.
func (d *database) scanTag(tag byte) *cursor { return d.scan([]byte{tag}, []byte{tag + 1}) }

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
	c.err = catch("read", c.db.dir, func() error {
		ok = move()
		c.begun = true
		return c.it.Error()
	})
	return ok && c.err == nil
}

// key and value are valid until the next move. The caller must not call them before next or last has returned true.
func (c *cursor) key() []byte { return c.it.Key() }

func (c *cursor) value() (v []byte) {
	err := catch("read", c.db.dir, func() (err error) {
		v, err = c.it.ValueAndErr()
		return err
	})
	c.err = errors.Join(c.err, err)
	return v
}

// close ends the walk and returns its first error.
func (c *cursor) close() error {
	if c.it == nil {
		return c.err
	}
	err := catch("read", c.db.dir, c.it.Close)
	if c.err != nil {
		return c.err // Pebble repeats it at the close
	}
	return err
}

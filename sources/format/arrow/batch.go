package arrow

import (
	"slices"

	"millrace/sources"
)

// enter makes the views of the shard's columns in a record batch.
func (r *reader) enter(batch int) error {
	s := r.shard
	p := s.layout.batches[batch]
	msg, err := r.messages.at(p.at)
	if err != nil {
		return err
	}
	if msg == nil || msg.kind != messageBatch {
		return damaged(s.f, "the record batch at byte %d is gone", p.at)
	}
	if err := r.columnsOf(msg, int64(p.rows)); err != nil {
		return damaged(s.f, "record batch at byte %d: %w", p.at, err)
	}
	for k := range r.columns {
		if err := r.setDictionaries(r.columns[k], batch, 0); err != nil {
			return err
		}
	}
	return nil
}

// columnsOf makes the views of a batch. Each column has its own, so that columns do not share windows.
func (r *reader) columnsOf(msg *message, rows int64) error {
	for k, c := range r.shard.columns {
		cur, declared, err := newCursor(r.shard.f, msg, msg.header, r.ahead)
		if err != nil {
			return err
		}
		if declared != rows {
			return errFlat
		}
		way, v, err := cur.follow(r.shard.layout.top, c.way, r.columns[k])
		if err != nil {
			return err
		}
		for _, w := range append(slices.Clone(way), v) {
			if w.rows < rows {
				return errFlat
			}
		}
		r.ways[k], r.columns[k] = way, v
	}
	return nil
}

// follow goes to the field at the end of a way, and returns the views of the structs before it.
func (c *cursor) follow(top *field, way []int, old *view) (above []*view, v *view, err error) {
	for depth, at := range way {
		for i := range at {
			if _, err := c.take(top.children[i], false, nil); err != nil {
				return nil, nil, err
			}
		}
		top = top.children[at]
		if depth == len(way)-1 {
			v, err = c.take(top, true, old)
			return above, v, err
		}
		w, err := c.enterStruct(top)
		if err != nil {
			return nil, nil, err
		}
		above = append(above, w)
	}
	return nil, nil, errFlat
}

// enterStruct takes the node and the buffer of a struct, and leaves those of its children.
func (c *cursor) enterStruct(f *field) (*view, error) {
	alone := *f
	alone.children = nil
	return c.take(&alone, false, nil)
}

// setDictionaries makes the views of the dictionaries of a column and its parts.
func (r *reader) setDictionaries(v *view, batch, depth int) error {
	if depth > mostDepth {
		return damaged(r.shard.f, "%w", sources.Limited("write the file again without dictionaries inside dictionaries",
			"its dictionaries are nested deeper than %d", mostDepth))
	}
	if v.field.index == nil {
		for _, c := range v.children {
			if err := r.setDictionaries(c, batch, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	id := v.field.dictionary
	parts := r.shard.layout.dictionaryOf(id, batch)
	if len(parts) == 0 {
		return damaged(r.shard.f, "the dictionary %d of column %q is not in it", id, v.field.name)
	}
	d, err := r.dictionary(v.field, parts, batch, depth)
	if err != nil {
		return err
	}
	v.values, v.firsts = d.views, nil
	for _, p := range parts {
		v.firsts = append(v.firsts, int64(p.first))
	}
	return nil
}

// dictionary returns the views of a dictionary's parts.
func (r *reader) dictionary(f *field, parts []place, batch, depth int) (*dictionary, error) {
	if d := r.dicts[f.dictionary]; d != nil && len(d.parts) == len(parts) && &d.parts[0] == &parts[0] {
		return d, nil
	}
	of := *f
	of.index = nil
	d := &dictionary{parts: parts}
	for _, p := range parts {
		msg, err := r.messages.at(p.at)
		if err != nil {
			return nil, err
		}
		if msg == nil || msg.kind != messageDictionary {
			return nil, damaged(r.shard.f, "the dictionary at byte %d is gone", p.at)
		}
		v, err := r.partOf(&of, msg, p)
		if err != nil {
			return nil, damaged(r.shard.f, "dictionary at byte %d: %w", p.at, err)
		}
		if err := r.setDictionaries(v, batch, depth+1); err != nil {
			return nil, err
		}
		d.views = append(d.views, v)
	}
	if r.dicts == nil {
		r.dicts = map[int64]*dictionary{}
	}
	r.dicts[f.dictionary] = d
	return d, nil
}

func (r *reader) partOf(f *field, msg *message, p place) (*view, error) {
	data, _, err := msg.header.table(1)
	if err != nil {
		return nil, err
	}
	cur, rows, err := newCursor(r.shard.f, msg, data, aheadScan)
	if err != nil {
		return nil, err
	}
	v, err := cur.take(f, true, nil)
	if err == nil && (rows != int64(p.rows) || v.rows != rows) {
		err = errFlat
	}
	return v, err
}

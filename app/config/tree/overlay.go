package tree

import "slices"

// Over returns a document of the same file whose root is a mapping laid over the root of d. It has the entries of the
// mapping, and those entries of d's root that the mapping lacks and keep accepts. It has no places yet.
func (d *Document) Over(mapping *Node, keep func(key string) bool) *Document {
	root := *mapping
	root.Entries = slices.Clone(mapping.Entries)
	for _, e := range d.Root.Entries {
		said := slices.ContainsFunc(mapping.Entries, func(own Entry) bool { return own.Key.Text == e.Key.Text })
		if !said && keep(e.Key.Text) {
			root.Entries = append(root.Entries, e)
		}
	}
	return &Document{text: d.text, Root: &root, Places: map[string]Entry{}}
}

package growth

import (
	"fmt"
	"slices"
	"strings"

	"millrace"
	"millrace/sources/read/order"
)

// Place is the position of a source when its run continues.
type Place struct {
	Ordinal   millrace.Ordinal // of the next document
	Begun     bool             // a part of that document was placed
	Epoch     millrace.Epoch   // of the last document that was consumed
	SeekPoint millrace.SeekPoint
	Waits     []millrace.Ordinal // of segments that wait to be packed: without Grow, they are dropped
}

// isFresh reports whether the source is still unread.
func (p *Place) isFresh() bool { return p.Ordinal == 0 && !p.Begun }

// Change leads from the files with which a state was saved to those of this run.
type Change struct {
	Was, Now *Listing
	Eras     millrace.Eras // of the state
	Seed     order.Seed
	Piece    uint32 // tokens of the pieces that ordinals are; 0: whole documents
	At       Place

	tables tables
	added  []int  // in Now
	gone   []bool // by shard of Was
	stays  []int  // by shard of Was: its index in Now
}

// NewChange compares two listings. was is nil if no listing of the state's files was kept: then the new files must
// follow all others in the order of names. files is the beginning of the fingerprint that the state has. kept has the
// block tables of shards.
func NewChange(c Change, files [4]byte, kept Blobs) (*Change, error) {
	name := c.Now.Manifest.Source
	if c.Was == nil {
		c.Was = c.Now.before(files)
	}
	if c.Was == nil {
		return nil, millrace.Errorf(millrace.ErrMismatch, "the index directory does not know the files that source %s "+
			"had when the state was saved: put these files alone in their place, run `%s`, and then bring the new "+
			"files back", name, c.counts())
	}
	if c.tables = (tables{}); !c.isGlobal() {
		c.tables.read(c.Was, kept)
		c.tables.read(c.Now, kept)
	}
	c.gone, c.stays = make([]bool, len(c.Was.Manifest.Shards)), make([]int, len(c.Was.Manifest.Shards))
	old := make([]bool, len(c.Now.Manifest.Shards))
	for i, was := range c.Was.Manifest.Shards {
		at, found := slices.BinarySearchFunc(c.Now.Manifest.Shards, was.Name,
			func(s millrace.Shard, name string) int { return strings.Compare(s.Name, name) })
		found = found && c.Now.Manifest.Shards[at].Size == was.Size && c.Now.Manifest.Shards[at].Digest == was.Digest
		if c.gone[i] = !found; found {
			c.stays[i], old[at] = at, true
		}
	}
	for i := range old {
		if !old[i] {
			c.added = append(c.added, i)
		}
	}
	return &c, nil
}

// Added returns the names of the files that are new, or have another content.
func (c *Change) Added() (out []string) {
	for _, i := range c.added {
		out = append(out, c.Now.Manifest.Shards[i].Name)
	}
	return out
}

// Gone returns the names of the files that are missing, or have another content.
func (c *Change) Gone() (out []string) {
	for i, gone := range c.gone {
		if gone {
			out = append(out, c.Was.Manifest.Shards[i].Name)
		}
	}
	return out
}

// shownFiles is the number of files that a text names.
const shownFiles = 4

func list(names []string) string {
	if n := len(names) - shownFiles; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shownFiles], ", "), n)
	}
	return strings.Join(names, ", ")
}

// String names the files that came and went.
func (c *Change) String() string {
	var parts []string
	if added := c.Added(); len(added) > 0 {
		parts = append(parts, fmt.Sprintf("new files: %s", list(added)))
	}
	if gone := c.Gone(); len(gone) > 0 {
		parts = append(parts, fmt.Sprintf("missing files: %s", list(gone)))
	}
	if len(parts) == 0 {
		return "the same files, read with other settings"
	}
	return strings.Join(parts, "; ")
}

// entry is a file in the list of all eras.
type entry struct {
	name     string // empty: it was removed by an earlier change
	era      uint32
	shard    int    // in Now; negative: it was removed
	ordinals uint64 // of a removed file
}

// Grow returns the eras after the change. With append, new files are read from the next epoch on. With mask, the
// ordinals of missing files are passed over. The error wraps millrace.ErrMismatch.
func (c *Change) Grow(appends, masks bool) (millrace.Eras, error) {
	if err := c.check(appends, masks); err != nil || c.At.isFresh() {
		return millrace.Eras{}, err
	}
	from := slices.Clone(c.Eras.From)
	if len(from) == 0 {
		from = []millrace.Epoch{0}
	}
	next, err := c.nextEpoch()
	if err != nil {
		return millrace.Eras{}, err
	}
	if len(c.added) > 0 && from[len(from)-1] < next {
		from = append(from, next)
	}
	entries, err := c.entries()
	if err != nil {
		return millrace.Eras{}, err
	}
	return pack(from, c.merge(entries, uint32(len(from)-1))), nil
}

// check refuses a change that the overrides do not name, or that is more than a change of files.
func (c *Change) check(appends, masks bool) error {
	name := c.Now.Manifest.Source
	refuse := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrMismatch, "source %s: %s", name, fmt.Sprintf(format, args...))
	}
	was, now := &c.Was.Manifest, &c.Now.Manifest
	switch added, gone := c.Added(), c.Gone(); {
	case was.Shuffle != now.Shuffle:
		return refuse("its order was %s and is %s with these files (%s), so its files cannot be appended or masked: "+
			"add files of the earlier kind, or a source of its own for the others", was.Shuffle, now.Shuffle, now.Why)
	case string(c.Was.Settings) != string(c.Now.Settings):
		return refuse("settings that decide its documents differ too, so its files cannot be appended or masked: " +
			"restore the settings, and change them in a later resume")
	case len(added) > 0 && !appends:
		return refuse("new files: %s: name them too, by override=[\"sources.%s.files=append\"], or take them away",
			list(added), name)
	case len(gone) > 0 && !masks:
		return refuse("missing files: %s: name them too, by override=[\"sources.%s.files=mask\"], or restore them",
			list(gone), name)
	}
	return nil
}

// entries returns the files of the state's eras as they are now. Removed files stay in the list, so that no other file
// moves.
func (c *Change) entries() (out []entry, err error) {
	runs := c.Eras.Runs
	if c.Eras.IsZero() {
		runs = []millrace.FileRun{{Files: uint32(len(c.gone))}}
	} else if c.Eras.Files() != uint64(len(c.gone)) {
		return nil, millrace.Errorf(millrace.ErrInvalid, "source %s: the state's lists of files do not fit its files: "+
			"pass the value of state_dict() unchanged", c.Now.Manifest.Source)
	}
	shard := 0
	for _, r := range runs {
		if r.Files == 0 {
			out = append(out, entry{era: r.Era, shard: -1, ordinals: r.Ordinals})
		}
		for range r.Files {
			e := entry{name: c.Was.Manifest.Shards[shard].Name, era: r.Era, shard: c.stays[shard]}
			if c.gone[shard] {
				if e, err = c.masked(e, shard); err != nil {
					return nil, err
				}
			}
			out, shard = append(out, e), shard+1
		}
	}
	return out, nil
}

// masked returns the entry of a file that was removed.
func (c *Change) masked(e entry, shard int) (entry, error) {
	n, known := c.Was.ordinals(shard, c.Piece, c.tables)
	if !known {
		what := "documents"
		if c.Piece > 0 {
			what = "pieces of documents"
		}
		return e, millrace.Errorf(millrace.ErrMismatch, "source %s: file %s was removed, and the index directory does "+
			"not know the number of its %s: bring the file back, run `millrace index MIXTURE --lengths` to count "+
			"them, and then remove it", c.Now.Manifest.Source, e.name, what)
	}
	e.shard, e.ordinals = -1, n
	return e, nil
}

// merge puts the new files into the list by their names. They belong to an era.
func (c *Change) merge(entries []entry, era uint32) (out []entry) {
	added := c.added
	until := func(isNext func(name string) bool) {
		for len(added) > 0 && isNext(c.Now.Manifest.Shards[added[0]].Name) {
			out = append(out, entry{name: c.Now.Manifest.Shards[added[0]].Name, era: era, shard: added[0]})
			added = added[1:]
		}
	}
	for _, e := range entries {
		if e.name != "" {
			until(func(name string) bool { return name < e.name })
		}
		out = append(out, e)
	}
	until(func(string) bool { return true })
	return out
}

// pack returns the eras of a list of files, the zero value if all epochs read all files.
func pack(from []millrace.Epoch, entries []entry) (out millrace.Eras) {
	last, removed := uint32(0), false
	for _, e := range entries {
		last, removed = max(last, e.era), removed || e.shard < 0
	}
	if last == 0 && !removed {
		return millrace.Eras{}
	}
	out.From = from[:last+1]
	for _, e := range entries {
		n := len(out.Runs)
		switch {
		case e.shard < 0:
			out.Runs = append(out.Runs, millrace.FileRun{Era: e.era, Ordinals: e.ordinals})
		case n > 0 && out.Runs[n-1].Files > 0 && out.Runs[n-1].Era == e.era:
			out.Runs[n-1].Files++
		default:
			out.Runs = append(out.Runs, millrace.FileRun{Era: e.era, Files: 1})
		}
	}
	return out
}

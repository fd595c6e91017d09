package guard

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace"
	"millrace/sources/facts/identity"
)

// lookEvery is the time between two checks of the path of a shard that is being read.
const lookEvery = 2 * time.Second

// Evidence has the facts by which a shard is recognised. Its methods may be called at the same time.
type Evidence interface {
	// Identity returns the identity of the file at a path, or the zero value if the store has no identities.
	Identity(path string) (identity.File, error)
	// Digest returns the size of a shard's file, and the digest that names the shard.
	Digest(path string) (size int64, digest millrace.Digest, err error)
	// CoversAll reports whether that digest covers every byte of files.
	CoversAll(files []identity.File) bool
	// Sample hashes some blocks in the middle of files. The hash is never 0.
	Sample(paths []string) (uint64, error)
	// Content returns a comparison of every byte of a shard with a digest that is kept, nil if none is kept. `since`
	// names the time from which the content differs; it is empty if the content is the same.
	Content(shard millrace.Shard) func(ctx context.Context) (since string, err error)
	// HasIndex reports whether an index of the shard is kept.
	HasIndex(shard millrace.Shard) bool
}

// Group makes the guards of one source. A nil Group makes guards that notice nothing.
type Group struct {
	Source   string // its name
	Cure     string // advice about a changed file
	Evidence Evidence
	Seen     *Seen
	Log      *slog.Logger
}

// Guard watches one shard. It is safe for concurrent use. A nil Guard notices nothing.
type Guard struct {
	group *Group
	shard millrace.Shard
	paths []string    // of the shard and its companions
	made  time.Time   // when the guard was made
	doubt atomic.Bool // the kept index of an earlier release may be of another file

	looked atomic.Int64 // time of the last check of the path, since made

	mu    sync.Mutex
	known []identity.File // of paths, as last found to be the shard; the caller's
	err   error           // the shard changed
	// renumbers: the file system gave the same file another inode number, so these numbers say nothing about it
	renumbers bool
}

// Watch returns the guard of a shard whose files at paths have the known identities. The guard keeps known up to date
// as long as it is used. It is nil if the store cannot identify files.
func (c *Group) Watch(shard millrace.Shard, paths []string, known []identity.File) *Guard {
	if c == nil || len(known) == 0 || known[0].IsZero() {
		return nil
	}
	return &Guard{group: c, shard: shard, paths: paths, known: known, made: time.Now()}
}

// identify returns the identities of the files that are at the shard's paths now.
func (g *Guard) identify() ([]identity.File, error) {
	out := make([]identity.File, len(g.paths))
	for i, path := range g.paths {
		var err error
		if out[i], err = g.group.Evidence.Identity(path); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Admit takes a digested shard. Its error means that the shard is not the file of the kept index and lengths. If no
// evidence decides this, the guard doubts the kept index.
func (g *Guard) Admit(ctx context.Context, shard millrace.Shard) error {
	if g == nil {
		return nil
	}
	g.shard = shard
	now, err := g.identify()
	if err != nil {
		return err
	}
	switch {
	case slices.Equal(now, g.known):
	case slices.EqualFunc(now, g.known, identity.File.IsRenumbered):
		copy(g.known, now)
	default:
		return g.changed(now, g.known, "while it was opened")
	}
	seen, known := g.group.Seen.find(g.shard)
	compare := g.group.Evidence.Content(g.shard)
	switch was, here := seen.On(g.group.Seen.host); {
	case known && seen.Knows(now), g.group.Evidence.CoversAll(now):
	case known && seen.KnowsTimes(now):
		return g.compareMiddle(now, was, seen.Sample)
	case compare != nil:
		return g.compareContent(ctx, compare, now, was)
	case known && here:
		return g.compareSample(now, was, seen.Sample)
	default:
		g.doubt.Store(g.group.Evidence.HasIndex(shard))
	}
	return nil
}

// Doubts reports whether a kept index may be of another file.
func (g *Guard) Doubts() bool { return g != nil && g.doubt.Load() }

// Doubt makes a guard doubt the kept index, as an earlier guard of the shard did.
func (g *Guard) Doubt() { g.doubt.Store(true) }

// NoteIndexed notes that the shard was read from beginning to end.
func (g *Guard) NoteIndexed() {
	if g != nil {
		g.doubt.Store(false)
	}
}

// Remember notes the files of the shard and the facts in its head for later runs, unless the guard doubts them. It adds
// a sample of their middle if no digest covers every byte. The store's version covers all bytes of an object. Of a file
// that was just changed it leaves the facts out, so the next run reads the file's ends again.
func (g *Guard) Remember(facts identity.Facts) (err error) {
	if g == nil || g.Doubts() {
		return nil
	}
	seen, known := g.group.Seen.find(g.shard)
	sample := uint64(0)
	if isNew := !known || !seen.Knows(g.known); isNew && seen.Sample == 0 && !g.known[0].IsObject() &&
		!g.group.Evidence.CoversAll(g.known) {
		if sample, err = g.group.Evidence.Sample(g.paths); err != nil {
			return err
		}
	}
	found := &facts
	if !isSettled(g.known) {
		found = nil
	}
	g.group.Seen.add(g.shard, sample, g.known, found)
	return nil
}

// settledAfter is longer than a tick of a file system's clock.
const settledAfter = 100 * time.Millisecond

// isSettled reports whether the files were changed so long ago that another change gives them another identity.
func isSettled(files []identity.File) bool {
	for _, f := range files {
		if time.Since(time.Unix(0, max(f.Changed, f.Modified))) < settledAfter {
			return false
		}
	}
	return true
}

// Opened is an open file of a shard, as last found to be the shard.
type Opened struct{ identity atomic.Pointer[identity.File] }

// Identity returns the identity of the file at its last check, the zero value if none was made.
func (f *Opened) Identity() identity.File {
	if id := f.identity.Load(); id != nil {
		return *id
	}
	return identity.File{}
}

// Check is called after every read of an open file, with the identity that the open file has now. The caller holds no
// file open. Check returns an error if the file is not the shard any more, or if the host cannot find that out.
func (g *Guard) Check(f *Opened, open identity.File) error {
	if g == nil {
		return nil
	}
	since := int64(time.Since(g.made))
	last := g.looked.Load()
	due := since-last > int64(lookEvery) && g.looked.CompareAndSwap(last, since)
	if was := f.identity.Load(); !due && was != nil && *was == open {
		return nil
	}
	return g.look(f, open)
}

// look compares an open file and the file at its path with the shard.
func (g *Guard) look(f *Opened, open identity.File) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	now, err := g.identify()
	was := f.identity.Load()
	switch {
	case err != nil:
		// No file is at the path now. The open file can still be read, if only its names changed.
		if err = nil; was != nil && open != *was && !open.IsSameVersion(*was) {
			err = g.changed([]identity.File{open}, []identity.File{*was}, "while it was read")
		}
	case !slices.Equal(now, g.known):
		err = g.compare(now)
	case open != now[0] && !open.IsSameVersion(now[0]):
		err = g.changed([]identity.File{open}, now[:1], "while it was read")
	}
	switch {
	case err == nil:
		f.identity.Store(&open)
	case errors.Is(err, millrace.ErrMismatch):
		g.err = err
	}
	return err
}

// compare decides by content whether the files at the shard's paths are still the shard. If they are, their identities
// become the known ones.
func (g *Guard) compare(now []identity.File) error {
	isRenumbered := slices.EqualFunc(now, g.known, identity.File.IsRenumbered)
	if !isRenumbered || !g.renumbers {
		if err := g.compareFiles(now, isRenumbered); err != nil {
			return err
		}
		g.group.Seen.add(g.shard, 0, now, nil)
	}
	g.renumbers = g.renumbers || isRenumbered
	copy(g.known, now)
	return nil
}

// compareFiles compares the ends of the files, and then their middles or all of their bytes.
func (g *Guard) compareFiles(now []identity.File, isRenumbered bool) error {
	size, digest, err := g.group.Evidence.Digest(g.shard.Path)
	switch {
	case err != nil:
		return err
	case size != g.shard.Size || digest != g.shard.Digest:
		return g.changed(now, g.known, "while it was read")
	case g.group.Evidence.CoversAll(now):
		return nil
	}
	seen, _ := g.group.Seen.find(g.shard)
	if isRenumbered {
		return g.compareMiddle(now, g.known, seen.Sample)
	}
	if compare := g.group.Evidence.Content(g.shard); compare != nil {
		return g.compareContent(context.Background(), compare, now, g.known)
	}
	return g.compareSample(now, g.known, seen.Sample)
}

// compareContent returns the error of a shard whose content differs.
func (g *Guard) compareContent(ctx context.Context, compare func(context.Context) (string, error),
	now, was []identity.File) error {
	since, err := compare(ctx)
	if err == nil && since != "" {
		err = g.changed(now, was, since)
	}
	return err
}

// compareMiddle compares a sample of the files' middles with the kept one, if there is one.
func (g *Guard) compareMiddle(now, was []identity.File, sample uint64) error {
	if sample == 0 {
		return nil
	}
	is, err := g.group.Evidence.Sample(g.paths)
	if err == nil && is != sample {
		err = g.changed(now, was, "since it was first read")
	}
	return err
}

// compareSample decides about a shard without a digest of every byte. It accepts a file of the same size and time of
// modification if the kept sample of its middle, if there is one, is the same. It refuses any other file.
func (g *Guard) compareSample(now, was []identity.File, sample uint64) error {
	if !slices.EqualFunc(now, was, identity.File.IsSameVersion) {
		return g.changed(now, was, "since it was first read")
	}
	if err := g.compareMiddle(now, was, sample); err != nil {
		return err
	}
	g.group.Log.Warn("a file was copied or moved; its size, times and a sample of its content are the same",
		"file", g.shard.Path)
	return nil
}

// changed returns the error of a shard whose file was replaced or changed.
func (g *Guard) changed(now, was []identity.File, when string) error {
	what, path := "", g.shard.Path
	for i := range now {
		if i < len(was) && now[i] != was[i] {
			what, path = ": "+now[i].Difference(was[i]), g.paths[i]
			break
		}
	}
	proof := ""
	if len(was) > 0 && now[0].Size == was[0].Size && g.group.Evidence.Content(g.shard) == nil {
		proof = "; no digest of its content is kept to compare it (check --deep keeps one)"
	}
	return millrace.Errorf(millrace.ErrMismatch, "file %s of source %s changed %s%s%s; %s",
		path, g.group.Source, when, what, proof, g.group.Cure)
}

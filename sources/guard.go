package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources/identity"
)

// lookEvery is how often the path of a shard that is being read is looked at.
const lookEvery = 2 * time.Second

// guard notices that a shard is no longer the file that was surveyed, and then lets its content decide. It is safe for
// concurrent use. A nil guard notices nothing.
type guard struct {
	src     *Source
	shard   millrace.Shard
	paths   []string    // of the shard and its companions
	content atomic.Bool // a digest of every byte is known
	doubt   atomic.Bool // nothing tells that an index of an earlier release is of this file

	looked atomic.Int64 // when the path was last looked at, as time since the source was made

	mu    sync.Mutex
	known []identity.File // of paths, as last found to be the shard
	err   error           // the shard changed
}

// newGuard returns the guard of a shard, nil if the source is not verified or its store cannot identify files.
func (s *Source) newGuard(sh millrace.Shard) (*guard, error) {
	if s.spec.Verify == VerifyOff {
		return nil, nil
	}
	g := &guard{src: s, shard: sh, paths: []string{sh.Path}}
	if c, ok := s.spec.Format.(Companions); ok {
		g.paths = append(g.paths, c.Companions(sh.Path)...)
	}
	var err error
	if g.known, err = g.identify(); err != nil || g.known[0].IsZero() {
		return nil, err
	}
	return g, nil
}

// identify returns the identities of the files that are at the shard's paths now.
func (g *guard) identify() ([]identity.File, error) {
	out := make([]identity.File, len(g.paths))
	for i, path := range g.paths {
		var err error
		if out[i], err = g.src.fs.Identity(path); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// admit decides, once a shard was digested, whether it is the file of which an index and lengths are remembered.
func (g *guard) admit(ctx context.Context, sh millrace.Shard) error {
	if g == nil {
		return nil
	}
	g.shard = sh
	now, err := g.identify()
	if err != nil {
		return err
	}
	if !slices.Equal(now, g.known) {
		return g.changed(now, g.known, "while it was opened")
	}
	seen, known := g.src.seen.find(g.shard)
	content, hasContent := g.src.contentOf(g.shard)
	g.content.Store(hasContent)
	switch was, here := seen.On(g.src.seen.host); {
	case known && seen.Knows(now), g.isShort(now):
	case hasContent:
		if err := content(ctx, now, was); err != nil {
			return err
		}
	case here:
		if err := g.compareSample(now, was, seen.Sample); err != nil {
			return err
		}
	default:
		_, _, indexed := g.src.loadIndex(sh)
		g.doubt.Store(indexed)
	}
	return nil
}

// doubts reports whether an index that is kept may be of another file.
func (g *guard) doubts() bool { return g != nil && g.doubt.Load() }

// indexed notes that the shard was read from beginning to end, with its digest if it was read in order.
func (g *guard) indexed(content []byte) {
	if g != nil {
		g.content.Store(content != nil)
		g.doubt.Store(false)
	}
}

// rememberFiles notes for later runs under which identities the source's files were found.
func (s *Source) rememberFiles(parallel int) error {
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, g := range s.guards {
		if g != nil && !g.doubts() {
			group.Go(g.remember)
		}
	}
	err := group.Wait()
	s.seen.save()
	return err
}

// isShort reports whether the shard's digest covers every byte, so that it proves the content.
func (g *guard) isShort(files []identity.File) bool {
	return !slices.ContainsFunc(files, func(f identity.File) bool { return f.Size > 2*digestEnds })
}

// remember notes the files of the shard, with a sample of its middle if nothing else is known of that.
func (g *guard) remember() (err error) {
	seen, known := g.src.seen.find(g.shard)
	if known && seen.Knows(g.known) {
		return nil
	}
	sample := seen.Sample
	if sample == 0 && !g.content.Load() && !g.isShort(g.known) {
		if sample, err = g.sample(); err != nil {
			return err
		}
	}
	g.src.seen.add(g.shard, sample, g.known)
	return nil
}

// check is called after every read of an open file. It returns why the file is not the shard any more.
func (g *guard) check(f *retryFile) error {
	if g == nil {
		return nil
	}
	now, err := f.OpenFile.Identity()
	if err != nil {
		return nil // the read itself told what is wrong, or nothing is
	}
	since := int64(time.Since(g.src.made))
	last := g.looked.Load()
	due := since-last > int64(lookEvery) && g.looked.CompareAndSwap(last, since)
	if was := f.opened.Load(); !due && was != nil && *was == now {
		return nil
	}
	return g.look(f, now)
}

// look compares an open file and what is at its path with the shard.
func (g *guard) look(f *retryFile, open identity.File) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	now, err := g.identify()
	was := f.opened.Load()
	switch {
	case err != nil:
		// The path leads nowhere just now. What was opened can still be read, if only its names changed.
		if was != nil && open != *was && !open.IsSameVersion(*was) {
			g.err = g.changed([]identity.File{open}, []identity.File{*was}, "while it was read")
		}
	case !slices.Equal(now, g.known):
		if g.err = g.compare(now); g.err == nil {
			g.known = now
			g.src.seen.add(g.shard, 0, now)
			g.src.seen.save()
		}
	case open != now[0] && !open.IsSameVersion(now[0]):
		was = &now[0]
		g.err = g.changed([]identity.File{open}, []identity.File{*was}, "while it was read")
	}
	if g.err == nil {
		f.opened.Store(&open)
	}
	return g.err
}

// compare decides by content whether the files that are there now are the shard.
func (g *guard) compare(now []identity.File) error {
	size, digest, err := shardDigest(g.src.fs, g.src.spec.Format, g.shard.Path, false)
	switch {
	case err != nil:
		return err
	case size != g.shard.Size || digest != g.shard.Digest:
		return g.changed(now, g.known, "while it was read")
	case g.isShort(now):
		return nil
	}
	if content, ok := g.src.contentOf(g.shard); ok {
		return content(context.Background(), now, g.known)
	}
	seen, _ := g.src.seen.find(g.shard)
	return g.compareSample(now, g.known, seen.Sample)
}

// compareSample decides about a shard of which not every byte was read before: a file whose size and time of modification
// are the same is taken for the shard if its ends and some blocks in its middle are the same; another is refused.
func (g *guard) compareSample(now, was []identity.File, sample uint64) error {
	same := slices.EqualFunc(now, was, identity.File.IsSameVersion)
	if same && sample != 0 {
		is, err := g.sample()
		if err != nil {
			return err
		}
		same = is == sample
	}
	if !same {
		return g.changed(now, was, "since it was first read")
	}
	g.src.log.Warn("a file was copied or moved; its size, times and a sample of its content are the same", "file", g.shard.Path)
	return nil
}

// changed is the error of a shard that is not the file that it was.
func (g *guard) changed(now, was []identity.File, when string) error {
	what, path := "", g.shard.Path
	for i := range now {
		if i < len(was) && now[i] != was[i] {
			what, path = ": "+now[i].Difference(was[i]), g.paths[i]
			break
		}
	}
	proof := ""
	if !g.content.Load() && len(was) > 0 && now[0].Size == was[0].Size {
		proof = "; no digest of its content is kept to tell whether that is the same (check --deep keeps one)"
	}
	return millrace.Errorf(millrace.ErrMismatch, "file %s of source %s changed %s%s%s; %s",
		path, g.src.spec.Name, when, what, proof, g.src.changedCure())
}

// changedCure says what to do about a file that changed.
func (s *Source) changedCure() string {
	if s.spec.IndexDir == "" {
		return "restore the file"
	}
	return "restore the file, or remove " + s.spec.IndexDir + " and begin a new run with the file as it is"
}

const (
	sampleBlocks = 16
	sampleBlock  = 4 << 10
)

// sample hashes some blocks of the shard between its ends; it is never 0.
func (g *guard) sample() (uint64, error) {
	h := xxh3.New()
	buf := make([]byte, sampleBlock)
	for _, path := range g.paths {
		f, err := g.src.fs.Open(path)
		if err != nil {
			return 0, err
		}
		for i := range int64(sampleBlocks) {
			at := digestEnds + (f.Size()-2*digestEnds)/sampleBlocks*i
			if at < digestEnds || at+sampleBlock > f.Size() {
				break
			}
			if err := ReadFull(f, buf, at); err != nil {
				return 0, errors.Join(fmt.Errorf("sample %s: %w", path, err), f.Close())
			}
			h.Write(buf)
		}
		if err := f.Close(); err != nil {
			return 0, err
		}
	}
	return h.Sum64() | 1, nil
}

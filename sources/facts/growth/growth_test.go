package growth_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/facts/growth"
	"millrace/sources/read/order"
)

// blobs is a store in memory.
type blobs map[string][]byte

func (b blobs) Load(of millrace.Digest, kind string) ([]byte, bool) {
	blob, ok := b[of.String()+kind]
	return blob, ok
}

func (b blobs) Save(of millrace.Digest, kind string, blob []byte) error {
	b[of.String()+kind] = blob
	return nil
}

// file is a file of the world: its content is its digest.
type file struct {
	name   string
	digest millrace.Digest
	blocks order.Table
}

// world is the files of a source and a run that reads them.
type world struct {
	rng     *rand.Rand
	shuffle millrace.Shuffle
	piece   uint32
	kept    blobs
	files   map[string]file
	made    uint64
	eras    millrace.Eras
	was     *growth.Listing // of the state
	at      growth.Place
}

func newWorld(seed uint64, shuffle millrace.Shuffle) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), shuffle: shuffle, kept: blobs{}, files: map[string]file{}}
	if shuffle == millrace.Global && seed%3 == 0 {
		w.piece = 4
	}
	for range 2 + w.rng.IntN(5) {
		w.add()
	}
	w.was = w.listing()
	return w
}

// add makes a file with a random name, or with the name and another content of one that is there.
func (w *world) add() {
	w.made++
	f := file{name: fmt.Sprintf("part-%02d", w.rng.IntN(40))}
	binary.LittleEndian.PutUint64(f.digest[:], w.made)
	for range 1 + w.rng.IntN(3) {
		n := uint64(1 + w.rng.IntN(9))
		f.blocks = append(f.blocks, order.BlockSize{Records: n, Raw: n})
	}
	w.files[f.name] = f
}

func (w *world) sorted() (out []file) {
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		out = append(out, w.files[name])
	}
	return out
}

// listing keeps and returns the list of the files that are there.
func (w *world) listing() *growth.Listing {
	l := &growth.Listing{Settings: []byte("settings"), Blocks: "blocks", Piece: w.piece}
	l.Manifest = millrace.Manifest{Source: "web", Format: "jsonl", Shuffle: w.shuffle}
	for _, f := range w.sorted() {
		s := millrace.Shard{Name: f.name, Digest: f.digest, Size: 1}
		if w.shuffle == millrace.Global {
			s.Count, s.Counted = f.blocks.Count(), true
		} else if err := w.kept.Save(f.digest, "blocks", f.blocks.Encode()); err != nil {
			panic(err)
		}
		l.Manifest.Shards = append(l.Manifest.Shards, s)
		if w.piece > 0 {
			l.Pieces = append(l.Pieces, f.blocks.Count())
		}
	}
	l.Manifest.Fingerprint = growth.Fingerprint(l.Settings, l.Manifest.Shards)
	if err := l.Save(w.kept); err != nil {
		panic(err)
	}
	return growth.Load(w.kept, "web", growth.Begin(l.Manifest.Fingerprint), w.piece)
}

// document is a document of the world; a removed one has no name.
type document struct {
	epoch  millrace.Epoch
	name   string
	digest millrace.Digest
	record uint64
}

// reader gives the documents of an order from a place on, as a feed does.
type reader struct {
	w      *world
	files  []file
	global *order.Lookup
	blocks *order.Blocks
	at     millrace.SeekPoint
}

func (w *world) reader(eras millrace.Eras, from millrace.SeekPoint) *reader {
	r := &reader{w: w, files: w.sorted(), at: from}
	seed := order.Seed{Run: 3, Source: "web"}
	if w.shuffle != millrace.Global {
		r.blocks = order.NewBlocks(seed, w.shuffle == millrace.InFileOrder, len(r.files)).InEras(eras)
		return r
	}
	counts := make([]uint64, len(r.files))
	for i, f := range r.files {
		counts[i] = f.blocks.Count()
	}
	r.global = order.NewGlobal(seed, counts).InEras(eras).Lookup()
	return r
}

// read returns the document of an ordinal; ordinals rise. In block orders, at is then the start of its block.
func (r *reader) read(n millrace.Ordinal) document {
	if r.global != nil {
		e, at := r.global.At(n)
		return r.document(e, at.Shard, at.Record)
	}
	for {
		shard, removed := r.blocks.ShardAt(r.at.Epoch, r.at.Shard)
		size := order.BlockSize{Records: removed - min(removed, r.at.Record)}
		if shard != millrace.RemovedShard {
			if t := r.files[shard].blocks; int(r.at.Block) < len(t) {
				size = t[r.at.Block]
			}
		}
		switch next := order.AfterBlock(r.at, size.Records); {
		case size.Records == 0:
			r.at = r.blocks.AfterShard(r.at)
		case n < next.Ordinal:
			i := uint64(n - r.at.Ordinal)
			if p, ok := r.blocks.Permutation(r.at, size.Records); ok && shard != millrace.RemovedShard {
				i = p.At(i)
			}
			return r.document(r.at.Epoch, shard, r.at.Record+i)
		default:
			r.at = next
		}
	}
}

func (r *reader) document(e millrace.Epoch, shard uint32, record uint64) document {
	if shard == millrace.RemovedShard {
		return document{epoch: e}
	}
	return document{e, r.files[shard].name, r.files[shard].digest, record}
}

// change compares the files of the state with those that are there.
func (w *world) change(t *testing.T) *growth.Change {
	t.Helper()
	files := growth.Begin(w.was.Manifest.Fingerprint)
	was := growth.Load(w.kept, "web", files, w.piece)
	c, err := growth.NewChange(growth.Change{Was: was, Now: w.listing(), Eras: w.eras,
		Seed: order.Seed{Run: 3, Source: "web"}, Piece: w.piece, At: w.at}, files, w.kept)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var shuffles = []millrace.Shuffle{millrace.Global, millrace.Blocks, millrace.InFileOrder}

// TestEveryEpochReadsItsFilesOnce: files come and go while a run stops, any number of times. Each epoch reads each
// document of the files with which it began exactly once. It passes over those of a removed file. The documents that it
// reads keep their ordinals.
func TestEveryEpochReadsItsFilesOnce(t *testing.T) {
	kinds := map[string]int{}
	for _, shuffle := range shuffles {
		for seed := range uint64(30) {
			w := newWorld(seed, shuffle)
			expect, read := map[document]bool{}, map[document]int{} // of the epoch that is under way
			r, epoch := w.reader(w.eras, millrace.SeekPoint{}), millrace.Epoch(0)
			begin := func() {
				clear(expect)
				clear(read)
				for _, f := range w.sorted() {
					for i := range f.blocks.Count() {
						expect[document{epoch, f.name, f.digest, i}] = true
					}
				}
			}
			begin()
			for w.at.Ordinal < 500 {
				for range w.rng.IntN(60) {
					d := r.read(w.at.Ordinal)
					if d.epoch != epoch {
						checkEpoch(t, seed, shuffle, expect, read)
						epoch = d.epoch
						begin()
					}
					if d.name != "" {
						read[d]++
					}
					w.at = growth.Place{Ordinal: w.at.Ordinal + 1, Epoch: d.epoch, SeekPoint: r.at}
				}
				kinds[w.changeFiles(t, seed, expect, read)]++
				if r = w.reader(w.eras, w.at.SeekPoint); w.at.Ordinal == 0 {
					begin()
				}
			}
		}
	}
	for _, kind := range []string{"append", "mask", "append mask", ""} {
		if kinds[kind] < 50 {
			t.Errorf("%d changes of kind %q", kinds[kind], kind)
		}
	}
}

func checkEpoch(t *testing.T, seed uint64, shuffle millrace.Shuffle, expect map[document]bool, read map[document]int) {
	t.Helper()
	for d := range expect {
		if read[d] != 1 {
			t.Fatalf("seed %d, %s: epoch %d read %s#%d %d times", seed, shuffle, d.epoch, d.name, d.record, read[d])
		}
	}
	if len(read) != len(expect) {
		t.Fatalf("seed %d, %s: an epoch read %d documents of %d", seed, shuffle, len(read), len(expect))
	}
}

// changeFiles lets files come and go, and brings the run's eras in line. It returns the kind of the change.
func (w *world) changeFiles(
	t *testing.T, seed uint64, expect map[document]bool, read map[document]int,
) (kind string) {
	t.Helper()
	before, old := w.reader(w.eras, w.at.SeekPoint), maps.Clone(w.files)
	adds, removes := w.rng.IntN(3), w.rng.IntN(2)
	for range adds {
		w.add()
	}
	for _, f := range w.sorted() {
		if _, isOld := old[f.name]; isOld && removes > 0 && len(w.files) > 2 && w.rng.IntN(3) == 0 {
			delete(w.files, f.name)
			removes--
		}
	}
	c := w.change(t)
	added, gone := len(c.Added()) > 0, len(c.Gone()) > 0
	if added {
		if _, err := c.Grow(false, true); err == nil || !strings.Contains(err.Error(), c.Added()[0]) {
			t.Fatalf("new files are masked: %v", err)
		}
	}
	if gone {
		if _, err := c.Grow(true, false); err == nil || !strings.Contains(err.Error(), c.Gone()[0]) {
			t.Fatalf("missing files are appended: %v", err)
		}
	}
	eras, err := c.Grow(added, gone)
	if err != nil {
		t.Fatal(err)
	}
	back, err := millrace.DecodeEras(eras.Encode())
	if err != nil || string(back.Encode()) != string(eras.Encode()) {
		t.Fatalf("eras %+v come back as %+v, %v", eras, back, err)
	}
	if n := c.Count(&back); !n.Known || n.Twice+n.Never+n.Skipped > 0 {
		t.Fatalf("seed %d, %s: a growth reads %+v", seed, w.shuffle, n)
	}
	w.countReplaced(t, seed, c, read)
	w.checkPlaces(t, seed, c, before, old, back, added)
	for d := range expect {
		if f, ok := w.files[d.name]; read[d] == 0 && (!ok || f.digest != d.digest) {
			delete(expect, d)
		}
	}
	w.eras, w.was = back, c.Now
	return strings.Join(c.Cures(), " ")
}

// checkPlaces checks that documents keep their ordinals: the rest of the epoch after any change, and all later epochs
// if no file is new. The change knows which of them are gone.
func (w *world) checkPlaces(
	t *testing.T, seed uint64, c *growth.Change, before *reader, old map[string]file, eras millrace.Eras, added bool,
) {
	t.Helper()
	if w.at.Ordinal == 0 {
		return
	}
	before.files = nil
	for _, name := range slices.Sorted(maps.Keys(old)) {
		before.files = append(before.files, old[name])
	}
	after := w.reader(eras, w.at.SeekPoint)
	for n := w.at.Ordinal; n < w.at.Ordinal+100; n++ {
		was, is := before.read(n), after.read(n)
		if added && was.epoch > w.at.Epoch {
			break
		}
		f, stays := w.files[was.name]
		if stays = stays && f.digest == was.digest; stays && was != is || !stays && is.name != "" {
			t.Fatalf("seed %d, %s: ordinal %d was %+v and is %+v", seed, w.shuffle, n, was, is)
		}
		gone, err := c.IsGone(n)
		if err != nil || gone == stays {
			t.Fatalf("seed %d, %s: ordinal %d, %+v: gone %v, %v", seed, w.shuffle, n, was, gone, err)
		}
	}
}

// countReplaced compares the numbers of a source that goes on in the order of its new files with a count.
func (w *world) countReplaced(t *testing.T, seed uint64, c *growth.Change, read map[document]int) {
	t.Helper()
	r, again := w.reader(millrace.Eras{}, millrace.SeekPoint{}), map[document]bool{}
	pass := r.read(w.at.Ordinal).epoch
	r = w.reader(millrace.Eras{}, millrace.SeekPoint{})
	for n := millrace.Ordinal(0); ; n++ {
		d := r.read(n)
		if d.epoch > pass {
			break
		}
		if d.epoch = 0; n >= w.at.Ordinal {
			again[d] = true
		}
	}
	have, twice, never := map[document]bool{}, uint64(0), uint64(0)
	isOver := w.isEpochOver(read)
	for d := range read {
		d.epoch = 0
		have[d] = !isOver
	}
	for i, s := range c.Was.Manifest.Shards {
		f, ok := w.files[s.Name]
		if !ok || f.digest != s.Digest || !w.readsNow(i, isOver) {
			continue
		}
		for record := range f.blocks.Count() {
			d := document{0, f.name, f.digest, record}
			if have[d] && again[d] {
				twice++
			} else if !have[d] && !again[d] {
				never++
			}
		}
	}
	if n := c.Count(nil); !n.Known || n.Twice != twice || n.Never != never {
		t.Fatalf("seed %d, %s at %d: counted %+v, twice %d, never %d", seed, w.shuffle, w.at.Ordinal, n, twice, never)
	}
}

// isEpochOver reports whether the next ordinal begins an epoch, in the order of the state.
func (w *world) isEpochOver(map[document]int) bool {
	if w.at.Ordinal == 0 {
		return false
	}
	return w.stateReader().read(w.at.Ordinal).epoch > w.at.Epoch
}

// stateReader reads in the order of the state.
func (w *world) stateReader() *reader {
	r := &reader{w: w, at: w.at.SeekPoint}
	for _, s := range w.was.Manifest.Shards {
		f := file{name: s.Name, digest: s.Digest}
		if blob, ok := w.kept.Load(s.Digest, "blocks"); ok {
			f.blocks, _ = order.DecodeTable(blob)
		} else {
			f.blocks = order.Table{{Records: s.Count}}
		}
		r.files = append(r.files, f)
	}
	seed := order.Seed{Run: 3, Source: "web"}
	if w.shuffle != millrace.Global {
		r.blocks = order.NewBlocks(seed, w.shuffle == millrace.InFileOrder, len(r.files)).InEras(w.eras)
		return r
	}
	counts := make([]uint64, len(r.files))
	for i := range r.files {
		counts[i] = r.files[i].blocks.Count()
	}
	r.global = order.NewGlobal(seed, counts).InEras(w.eras).Lookup()
	return r
}

// readsNow reports whether the pass that holds the next ordinal reads a file of the state.
func (w *world) readsNow(shard int, isOver bool) bool {
	if w.eras.IsZero() {
		return true
	}
	pass := w.at.Epoch
	if isOver {
		pass++
	}
	era := len(w.eras.From) - 1
	for era > 0 && w.eras.From[era] > pass {
		era--
	}
	return slices.ContainsFunc(w.eras.List(era), func(f millrace.EraFile) bool { return int(f.Shard) == shard })
}

package feed

import (
	"context"

	"millrace"
	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/read/order"
)

// Placed has requests whose tokens are plain ids in one file.
type Placed struct {
	Path     string
	Identity identity.File // of the file that was surveyed
	Width    uint32        // bytes of an id, little-endian
	Requests []int         // indexes of the requests
	Counts   []uint32      // by request: its ids, as Fetch would emit them
	Offsets  []int64       // by request: of its first id, in bytes
}

// Places returns the places of the requested tokens, by file, and the indexes of the requests that Fetch has to serve.
// It reads no document. While every request has a place, the feed makes no tokens ahead of need.
func (f *Feed) Places(ctx context.Context, reqs []Request) (placed []Placed, rest []int) {
	all := make([]int, len(reqs))
	for i := range all {
		all[i] = i
	}
	global := f.src.Global()
	if global == nil || !f.src.HasPlaces() {
		return nil, all
	}
	p := &placer{feed: f, ctx: ctx, walk: global.Lookup(), files: map[uint32]*placedFile{}}
	defer p.close()
	within := f.within(reqs)
	for i, r := range reqs {
		if !within || !p.place(i, r) {
			rest = append(rest, i)
		}
	}
	for _, shard := range p.shards {
		if file := p.files[shard]; len(file.Requests) > 0 {
			placed = append(placed, file.Placed)
		}
	}
	f.mu.Lock()
	defer f.unlock()
	f.ahead.lazy, f.ahead.placed = f.ahead.lazy && len(rest) > 0, len(rest) == 0
	return placed, rest
}

// within reports whether the feed serves all requests. If it does not, Fetch has the reason.
func (f *Feed) within(reqs []Request) bool {
	f.mu.Lock()
	defer f.unlock()
	if f.err != nil {
		return false
	}
	for _, r := range reqs {
		if !f.stripe.Has(r.Ordinal) ||
			f.ahead.cursor.check(f.src.Name(), r.Ordinal, f.stripe.Position(r.Ordinal)) != nil {
			return false
		}
	}
	return true
}

// placer finds the places of one list of requests.
type placer struct {
	feed   *Feed
	ctx    context.Context
	walk   *order.Lookup
	files  map[uint32]*placedFile // by shard
	shards []uint32               // of files, in the order of the requests
}

// placedFile is a shard that stays open until all places are found.
type placedFile struct {
	Placed
	open  *sources.OpenShard
	shard sources.Placer // nil: its documents have no places
}

// place finds the place of one request.
func (p *placer) place(i int, r Request) bool {
	_, at := p.walk.At(r.Ordinal)
	if at.Shard == millrace.RemovedShard {
		return false
	}
	file := p.file(at.Shard)
	if file.shard == nil {
		return false
	}
	doc, ok := file.shard.Place(at.Record)
	end, until := doc.Tokens, uint64(r.Offset)+uint64(r.Length)
	if piece := p.feed.src.PieceTokens(); piece > 0 && doc.Tokens-min(at.Offset, doc.Tokens) > piece {
		end = at.Offset + piece
	}
	if !ok || r.Length == 0 || r.Offset < at.Offset || until > uint64(end) {
		return false
	}
	count := r.Length
	if until < uint64(doc.Tokens) {
		count++
	}
	file.Width = doc.Width
	file.Requests = append(file.Requests, i)
	file.Counts = append(file.Counts, count)
	file.Offsets = append(file.Offsets, doc.Offset+int64(r.Offset)*int64(doc.Width))
	return true
}

// file returns the file of a shard, which it opens and checks once.
func (p *placer) file(shard uint32) *placedFile {
	if file := p.files[shard]; file != nil {
		return file
	}
	file := &placedFile{}
	p.files[shard], p.shards = file, append(p.shards, shard)
	open, err := p.feed.src.Acquire(p.ctx, shard)
	if err != nil {
		return file // Fetch meets the error again, and reports it
	}
	file.open = open
	id, err := open.Identity()
	if err == nil && !id.IsZero() {
		file.shard = open.Abilities().Places
		file.Path, file.Identity = open.Path(), id
	}
	return file
}

func (p *placer) close() {
	for _, file := range p.files {
		if file.open != nil {
			p.feed.src.Release(file.open)
		}
	}
}

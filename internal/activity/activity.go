// Package activity measures the work of a role: the time of each kind of activity by source, the bytes read and the
// tokens made, and the current activity. A [Cause] names the activity that a trainer waits for.
//
// A clock is read once for each block, read or document, and never for a token. Content never depends on it.
package activity

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Kind is one of the activities between a data file and a batch.
type Kind string

// The kinds of activity. The first four are a loader's, Plan is the orchestrator's, the others are the sidecar's.
const (
	Read     Kind = "read"     // bytes of a data file
	Storage  Kind = "storage"  // waiting for a store or a disk that does not answer
	Decode   Kind = "decode"   // bytes to records
	Tokenise Kind = "tokenise" // text to tokens
	Plan     Kind = "plan"     // offers to a sealed step
	Fetch    Kind = "fetch"    // tokens from a loader to the sidecar
	Build    Kind = "build"    // tokens to a batch
	Ranks    Kind = "ranks"    // waiting for another rank
	Frames   Kind = "frames"   // waiting for a frame that the trainer holds
)

// Kinds returns all kinds, in the order of a sample's way.
func Kinds() []Kind {
	return []Kind{Read, Storage, Decode, Tokenise, Plan, Fetch, Build, Ranks, Frames}
}

// kinds is the number of kinds.
const kinds = 9

// index returns the kind's place in Kinds.
func (k Kind) index() int {
	switch k {
	case Read:
		return 0
	case Storage:
		return 1
	case Decode:
		return 2
	case Tokenise:
		return 3
	case Plan:
		return 4
	case Fetch:
		return 5
	case Build:
		return 6
	case Ranks:
		return 7
	}
	return 8
}

// Verb returns the kind as the verb of a sentence about a role.
func (k Kind) Verb() string {
	switch k {
	case Read, Decode, Tokenise, Plan, Build:
		return string(k) + "s"
	case Fetch:
		return "fetches"
	case Storage:
		return "waits for the storage of"
	}
	return "waits for"
}

// window is the shortest time over which Current compares the kinds.
const window = 500 * time.Millisecond

// Meter holds the sources of one process. A nil Meter measures nothing. It is safe for concurrent use.
type Meter struct {
	now   func() time.Time
	began time.Time

	mu      sync.Mutex
	sources map[string]*Source
	names   []string // in the order of their first use
}

// New returns a meter that reads the time from now.
func New(now func() time.Time) *Meter {
	return &Meter{now: now, began: now(), sources: map[string]*Source{}}
}

// Source returns the part of a source, "" for activities of no source. The part of a nil Meter is nil.
func (m *Meter) Source(name string) *Source {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sources[name]
	if s == nil {
		s = &Source{name: name, now: m.now, running: map[*Activity]struct{}{}}
		m.sources[name], m.names = s, append(m.names, name)
	}
	return s
}

// All returns the parts of all sources, in the order of their first use.
func (m *Meter) All() (out []*Source) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.names {
		out = append(out, m.sources[name])
	}
	return out
}

// Current returns the activity that a role's wait for a source is due to. If the process does no work for the source,
// it is the activity that takes the most time of the process. The zero value means that the process is idle.
func (m *Meter) Current(source string) Current {
	var busiest Current
	for _, s := range m.All() {
		c := s.Current()
		if s.name == source && c.Kind != "" {
			return c
		}
		if c.Share > busiest.Share {
			busiest = c
		}
	}
	return busiest
}

// Wall returns the time since the meter was made.
func (m *Meter) Wall() time.Duration { return m.now().Sub(m.began) }

// Times has the time of each kind. Decode is without the reads and the storage that it waited for.
type Times map[Kind]time.Duration

// Figures are the counters of one source. They only grow.
type Figures struct {
	Times     Times // with the activities that are under way
	Bytes     int64 // read from data files
	Tokens    int64 // made of records, also by activities that are under way
	Documents int64 // the records that they were made of
	Fetches
}

// Fetches are the counters of a source in an object store, since the process started. All are 0 for local files.
type Fetches struct {
	Fetched  int64 // bytes that came from the store
	Used     int64 // bytes that readers took, from the store or from the cache of files
	Requests int64 // of ranges, with retries and hedges
	Retries  int64
	Hedges   int64 // second requests beside slow ones
	Hits     int64 // blocks read from the cache of files
	Misses   int64 // blocks that the cache of files lacked
}

// Total sums figures up, to see whether they have changed.
type Total struct {
	Time                     time.Duration
	Bytes, Tokens, Documents int64
	Fetches
	Idle bool
}

// Total returns the sum of the figures. Idle is not set.
func (f Figures) Total() Total {
	t := Total{Bytes: f.Bytes, Tokens: f.Tokens, Documents: f.Documents, Fetches: f.Fetches}
	for _, spent := range f.Times {
		t.Time += spent
	}
	return t
}

// CPU returns the processor time of this process.
func CPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Current is the activity of a source that took the most time in the last half second to second.
type Current struct {
	Kind   Kind
	Source string
	Shard  string
	Share  float64 // of one processor, or more if several decoders do it
}

// Source measures the activities of one source in one process. Every method of a nil Source does nothing. It is safe
// for concurrent use.
type Source struct {
	name string
	now  func() time.Time

	tokens    atomic.Int64
	documents atomic.Int64

	mu      sync.Mutex
	running map[*Activity]struct{}
	spare   []*Activity          // for reuse
	spent   [kinds]time.Duration // by index, of ended activities
	bytes   int64
	fetches func() Fetches // nil: none
	shards  [4]lastShard
	marks   [2]mark // the older first
}

// lastShard is the shard of the newest activity of a loader's kind.
type lastShard struct {
	kind  Kind
	shard string
}

// mark is the figures at a time.
type mark struct {
	at    time.Time
	times Times
}

// Activity is one activity that is under way. One goroutine uses it. Every method of a nil Activity does nothing.
type Activity struct {
	of    *Source
	kind  Kind
	shard string
	since time.Time
}

// Name returns the name of the source.
func (s *Source) Name() string { return s.name }

// Begin begins an activity. The caller ends it.
func (s *Source) Begin(kind Kind, shard string) *Activity {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var a *Activity
	if n := len(s.spare); n > 0 {
		a, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		a = &Activity{of: s}
	}
	a.kind, a.shard, a.since = kind, shard, s.now()
	s.running[a] = struct{}{}
	s.note(kind, shard)
	return a
}

// note remembers the shard of a kind; mu is held.
func (s *Source) note(kind Kind, shard string) {
	for i := range s.shards {
		if l := &s.shards[i]; l.kind == kind || l.kind == "" {
			l.kind, l.shard = kind, shard
			return
		}
	}
}

// Turn changes to another kind, and returns the kind before.
func (a *Activity) Turn(kind Kind) (before Kind) {
	if a == nil {
		return kind
	}
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	before = a.kind
	a.charge(a.of.now())
	a.kind = kind
	a.of.note(kind, a.shard)
	return before
}

// charge adds the time until now; mu is held.
func (a *Activity) charge(now time.Time) {
	a.of.spent[a.kind.index()] += now.Sub(a.since)
	a.since = now
}

// Made counts the tokens of a document. Its time counts while it is made, so its tokens count when they are there, and
// not at the end of an activity that makes many documents.
func (a *Activity) Made(tokens int) {
	if a == nil {
		return
	}
	a.of.tokens.Add(int64(tokens))
	a.of.documents.Add(1)
}

// End ends the activity, which read bytes.
func (a *Activity) End(bytes int64) {
	if a == nil {
		return
	}
	s := a.of
	s.mu.Lock()
	defer s.mu.Unlock()
	a.charge(s.now())
	s.bytes += bytes
	delete(s.running, a)
	s.spare = append(s.spare, a)
}

// Watch takes the counters of the source's store from a function. It must not call the source.
func (s *Source) Watch(fetches func() Fetches) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches = fetches
}

// Figures returns the counters.
func (s *Source) Figures() Figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Figures{Times: s.times(s.now()), Bytes: s.bytes, Tokens: s.tokens.Load(), Documents: s.documents.Load()}
	if s.fetches != nil {
		out.Fetches = s.fetches()
	}
	return out
}

// times returns the time of each kind at a time; mu is held. Reads, and waits for
// storage, happen within decoding, on the same goroutine.
func (s *Source) times(now time.Time) Times {
	out := Times{}
	for i, kind := range Kinds() {
		if s.spent[i] > 0 {
			out[kind] = s.spent[i]
		}
	}
	for a := range s.running {
		out[a.kind] += now.Sub(a.since)
	}
	if decode, ok := out[Decode]; ok {
		out[Decode] = max(decode-out[Read]-out[Storage], 0)
	}
	return out
}

// Current returns the activity that took the most time lately. It is meant to be called at least once a second.
func (s *Source) Current() Current {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	times := s.times(now)
	if s.marks[1].at.IsZero() {
		s.marks[0], s.marks[1] = mark{now.Add(-window), Times{}}, mark{now, times}
	} else if now.Sub(s.marks[1].at) >= window {
		s.marks[0], s.marks[1] = s.marks[1], mark{now, times}
	}
	from := s.marks[0]
	best, kind := time.Duration(0), Kind("")
	for _, k := range Kinds() {
		if d := times[k] - from.times[k]; d > best {
			best, kind = d, k
		}
	}
	span := now.Sub(from.at)
	if kind == "" || best < span/leastShare {
		return Current{}
	}
	out := Current{Kind: kind, Source: s.name, Share: float64(best) / float64(span)}
	for _, l := range s.shards {
		if l.kind == kind {
			out.Shard = l.shard
		}
	}
	return out
}

// leastShare is a divisor: an activity that takes at least 1/leastShare of a window may be the current one.
const leastShare = 50

package orchestrator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/roster"
	"millrace/proto"
)

// loaderProcess is a scripted loader process. It carries out its orders one by one.
type loaderProcess struct {
	name    string
	pid     int64
	box     *box // its newest session
	open    bool // its newest session is open
	opened  map[string]bool
	reads   map[facts.Stripe]*scriptedRead
	deliver int // orders of the session that it has taken
}

type scriptedRead struct {
	term, next, want uint64
	standby          bool
}

// cluster is a machine, its journal, and loader processes that come and go.
type cluster struct {
	t        *testing.T
	rng      *rand.Rand
	cfg      Config
	journal  []facts.Fact
	m        *Machine
	now      time.Time
	slots    map[string]*loaderProcess // the newest process of each slot; nil for none
	zombies  []*loaderProcess          // fenced, and still there
	fenced   map[roster.Process]bool   // by the machine
	pids     int64
	sidecar  *box
	heard    int // orders that the sidecar has taken
	dir      map[facts.Stripe]*proto.LoaderStripe
	standbys map[string]bool // (stripe, member, term) that were granted as a standby
	primary  map[string]string
	newest   uint64
	refused  int
	promoted int
	purity   purity
	below    [2]uint64 // by rank: first step that it has not consumed
}

var slots = []string{"loader-0", "loader-1", "shadow-0", "shadow-1"}

func newCluster(t *testing.T, seed uint64, names ...string) *cluster {
	c := &cluster{
		t:        t,
		rng:      rand.New(rand.NewPCG(seed, 9)),
		cfg:      newConfig(t, 2),
		now:      time.UnixMilli(1_000_000),
		slots:    map[string]*loaderProcess{},
		dir:      map[facts.Stripe]*proto.LoaderStripe{},
		standbys: map[string]bool{},
		primary:  map[string]string{},
	}
	c.cfg.Sources[1].Stripes, c.cfg.Loaders = 2, 2
	c.cfg.Shadows = len(names) - 2
	for _, name := range names {
		c.slots[name] = nil
	}
	c.restart()
	return c
}

// restart is a new orchestrator over the same journal; every process that is there comes back.
func (c *cluster) restart() {
	c.t.Helper()
	s := facts.NewState()
	for _, f := range c.journal {
		s.Apply(f)
	}
	first := []facts.Fact{{Record: &proto.Record{Fact: &proto.Record_Term{Term: &proto.TermTaken{Term: s.Term + 1}}}}}
	for _, f := range first {
		s.Apply(f)
	}
	c.journal = append(c.journal, first...)
	var ranks []*proto.RankPosition
	if c.m != nil && c.m.s.Attempt != nil {
		for r, below := range c.below {
			ranks = append(ranks, &proto.RankPosition{Rank: uint32(r), Attempt: 1, Below: below, Serving: true})
		}
	}
	m, err := NewMachine(c.cfg, s)
	if err != nil {
		c.t.Fatal(err)
	}
	c.m, c.sidecar, c.heard, c.fenced = m, &box{}, 0, map[roster.Process]bool{}
	m.Tick(c.now)
	hello := &proto.SidecarHello{Version: testVersion(), Name: "sidecar-0", Ranks: ranks}
	if err := m.SidecarUp(c.sidecar, hello); err != nil {
		c.t.Fatal(err)
	}
	if ranks == nil {
		for r := range uint32(2) {
			m.Joined(c.sidecar, &proto.Join{Rank: r, Start: "fresh", Call: uint64(r) + 1})
		}
	}
	for _, p := range c.slots {
		if p != nil {
			p.open = false
		}
	}
	c.turn()
}

func (c *cluster) turn() {
	c.t.Helper()
	for {
		d := c.purity.decide(c.t, c.m)
		for _, f := range d.Facts {
			c.check(f)
			c.journal = append(c.journal, f)
		}
		c.m.Apply(d)
		for _, a := range c.m.Actions() {
			switch {
			case a.To != nil:
				a.To.Send(a.Msg)
			case a.Fenced != nil:
				c.fenced[*a.Fenced] = true
				if p := c.slots[a.Fenced.Name]; p != nil && p.pid == a.Fenced.Pid {
					c.zombies, c.slots[p.name] = append(c.zombies, p), nil
				}
			}
		}
		if d.IsEmpty() {
			break
		}
	}
	if err := c.m.Failed(); err != nil {
		c.t.Fatal(err)
	}
	for _, msg := range c.sidecar.got[c.heard:] {
		if d := msg.(*proto.SidecarOrder).GetLoaders(); d != nil {
			c.checkDirectory(d)
		}
	}
	c.heard = len(c.sidecar.got)
}

// check checks an assignment: its term is new and belongs to one member, or is the term of the standby that takes over.
func (c *cluster) check(f facts.Fact) {
	a := f.GetAssigned()
	if a == nil {
		return
	}
	grant := fmt.Sprintf("%s/%d %s %d", a.Source, a.Stripe, a.Member, a.Term)
	if !a.Standby && c.standbys[grant] {
		c.promoted++
	} else if a.Term <= c.newest {
		c.t.Fatalf("%v after term %d", a, c.newest)
	}
	c.newest = max(c.newest, a.Term)
	if a.Standby {
		c.standbys[grant] = true
		return
	}
	key := fmt.Sprintf("%s/%d %d", a.Source, a.Stripe, a.Term)
	if was := c.primary[key]; was != "" {
		c.t.Fatalf("%s was given to %s, and now to %s", key, was, a.Member)
	}
	c.primary[key] = a.Member
}

// checkDirectory checks that no stripe of the directory goes back to a lower term.
func (c *cluster) checkDirectory(d *proto.Loaders) {
	for _, s := range d.Stripes {
		key := facts.Stripe{Source: s.Source, Index: s.Stripe}
		if s.Name == "" { // it has no reader now
			continue
		}
		if old := c.dir[key]; old != nil && s.Term < old.Term {
			c.t.Fatalf("the directory went from %v to %v", old, s)
		}
		if s.Standby != nil && (s.Standby.Term <= s.Term || s.Standby.Name == s.Name) {
			c.t.Fatalf("%s/%d: the standby %v does not follow %s under term %d", s.Source, s.Stripe, s.Standby, s.Name,
				s.Term)
		}
		c.dir[key] = s
	}
}

// come starts a slot's process, or brings back a process that lost its connection. A refused process leaves.
func (c *cluster) come(name string) {
	p := c.slots[name]
	if p == nil {
		c.pids++
		p = &loaderProcess{name: name, pid: c.pids, opened: map[string]bool{}, reads: map[facts.Stripe]*scriptedRead{}}
		c.slots[name] = p
	}
	if p.open {
		return
	}
	p.box, p.deliver, p.open = &box{}, 0, true
	if err := c.hello(p); err != nil {
		if !errors.Is(err, millrace.ErrFenced) {
			c.t.Fatal(err)
		}
		c.refused++
		c.slots[name] = nil
	}
	c.turn()
}

// address returns an address that no other process has.
func address(p *loaderProcess) string { return fmt.Sprint(p.name, p.pid) }

func (c *cluster) hello(p *loaderProcess) error {
	return c.m.roster.Connect(
		p.box,
		&proto.LoaderHello{
			Version: testVersion(),
			Name:    p.name,
			Pid:     p.pid,

			Identity: address(p),
			Address:  address(p),
			Standby:  p.name[0] == 's',
		},
	)
}

// obey lets a process carry out its next order.
func (c *cluster) obey(p *loaderProcess) bool {
	if p == nil || !p.open || p.deliver >= len(p.box.got) {
		return false
	}
	order := p.box.got[p.deliver].(*proto.LoaderOrder)
	p.deliver++
	switch o := order.Order.(type) {
	case *proto.LoaderOrder_Open:
		p.opened[o.Open.Source] = true
		hearManifest(c.m, p.box, p.name, &proto.Manifest{Source: o.Open.Source, Fingerprint: make([]byte, 16)})
	case *proto.LoaderOrder_Read:
		if !p.opened[o.Read.Source] {
			c.t.Fatalf("%s was told to read %s before it had opened it", p.name, o.Read.Source)
		}
		p.reads[facts.Stripe{Source: o.Read.Source, Index: o.Read.Stripe}] = &scriptedRead{
			term: o.Read.Term, next: o.Read.Ordinal, standby: o.Read.Standby}
		if o.Read.Standby {
			c.m.roster.Ready(p.box, p.name, &proto.Ready{Source: o.Read.Source, Stripe: o.Read.Stripe,
				Term: o.Read.Term})
		}
	case *proto.LoaderOrder_Promote:
		r := p.reads[facts.Stripe{Source: o.Promote.Source, Index: o.Promote.Stripe}]
		if r == nil || !r.standby || r.term != o.Promote.Term {
			c.t.Fatalf("%s was promoted to %v, it has %v", p.name, o.Promote, r)
		}
		r.standby = false
		if c.rng.IntN(2) == 0 { // else it sends old messages again
			r.next = max(r.next, o.Promote.Ordinal)
		}
	case *proto.LoaderOrder_Drop:
		delete(p.reads, facts.Stripe{Source: o.Drop.Source, Index: o.Drop.Stripe})
	case *proto.LoaderOrder_Reading:
		for key, r := range p.reads {
			if i := slices.Index(o.Reading.Source, key.Source); i >= 0 && !r.standby {
				r.want = max(r.want, o.Reading.Until[i])
			}
		}
	case *proto.LoaderOrder_Bye:
		p.open = false
		c.m.roster.Disconnect(p.box, p.name)
		if c.slots[p.name] == p {
			c.slots[p.name] = nil
		}
	}
	c.turn()
	return true
}

// offer lets a process offer the wanted ordinals, at most so many of each stripe.
func (c *cluster) offer(p *loaderProcess, most int) (said bool) {
	if p == nil || !p.open {
		return false
	}
	for i, src := range c.cfg.Sources {
		for stripe := range src.Stripes {
			r := p.reads[facts.Stripe{Source: src.Name, Index: uint32(stripe)}]
			if r == nil || r.standby || r.next >= r.want {
				continue
			}
			m := &proto.Offers{Source: sourceNames[i], Stripe: uint32(stripe)}
			for n := 0; n < most && r.next < r.want; r.next++ {
				if millrace.Ordinal(r.next).Stripe(uint64(src.Stripes)) == uint64(stripe) {
					fill(m, r.next, length(src.Name, r.next))
					n++
				}
			}
			said = true
			hearOffers(c.m, p.box, p.name, r.term, m)
			c.turn()
		}
	}
	return said
}

func fill(m *proto.Offers, ordinal uint64, tokens uint32) {
	m.Ordinal, m.Epoch, m.Shard, m.Record, m.Tokens = append(m.Ordinal, ordinal), append(m.Epoch,
		0), append(m.Shard, 0), append(
		m.Record,
		ordinal,
	), append(m.Tokens, tokens)
}

// lie offers false lengths under every term except the one under which the process is a primary.
func (c *cluster) lie(p *loaderProcess) {
	if p == nil || p.box == nil {
		return
	}
	for i, src := range c.cfg.Sources {
		for stripe := range src.Stripes {
			now, term := reader(c.m, src.Name, uint32(stripe)), c.rng.Uint64N(c.newest+3)
			if r := p.reads[facts.Stripe{Source: src.Name, Index: uint32(stripe)}]; r != nil && c.rng.IntN(2) == 0 {
				term = r.term
			}
			if now.Address == address(p) && now.Term == term {
				continue
			}
			m := &proto.Offers{Source: src.Name, Stripe: uint32(stripe)}
			for o := uint64(c.m.queues[i].First()); o < uint64(c.m.queues[i].Next())+70; o++ {
				fill(m, o, 77777)
			}
			hearOffers(c.m, p.box, p.name, term, m)
			c.turn()
		}
	}
}

// consume lets every rank take the next step, if it is sealed.
func (c *cluster) consume() {
	if step := c.m.s.Watermark; step < c.m.s.Next {
		for r := range uint32(2) {
			c.below[r] = step + 1
			c.m.Committed(c.sidecar, &proto.Commit{Rank: r, Attempt: 1, Step: step})
		}
		c.turn()
	}
}

func (c *cluster) wait(d time.Duration) {
	c.now = c.now.Add(d)
	c.m.Tick(c.now)
	c.turn()
}

// happen lets one random event happen, mostly a harmless one.
func (c *cluster) happen() {
	name := slots[c.rng.IntN(len(slots))]
	p, ok := c.slots[name]
	if !ok {
		return
	}
	switch c.rng.IntN(40) {
	case 0: // killed
		if p != nil && p.open {
			c.m.roster.Disconnect(p.box, name)
		}
		c.slots[name] = nil
	case 1: // its connection is lost
		if p != nil && p.open {
			p.open = false
			c.m.roster.Disconnect(p.box, name)
		}
	case 2: // reconnects before the orchestrator sees the loss
		if p != nil && p.open {
			p.open = false
			c.come(name)
		}
	case 3: // replaced before the orchestrator sees the loss
		if p != nil && p.open {
			c.zombies, c.slots[name] = append(c.zombies, p), nil
			c.come(name)
		}
	case 4:
		if p != nil && p.open {
			c.m.roster.Leaving(p.box, name, &proto.Leaving{ForGood: c.rng.IntN(2) == 0})
		}
	case 24:
		c.m.roster.Resize(1 + c.rng.IntN(3))
	case 5, 6:
		for key, s := range c.dir {
			if s.Standby != nil && c.rng.IntN(2) == 0 {
				late := &proto.Switched{
					Source: key.Source,
					Stripe: key.Index,
					Term:   s.Standby.Term,
					Step:   c.m.s.Watermark,
					Reason: "silent",
				}
				c.m.roster.Switched(late, c.m.s.AssignTerm)
				break
			}
		}
	case 7:
		c.restart()
	case 8:
		if n := len(c.zombies); n > 0 { // a process that was paused wakes up
			z := c.zombies[c.rng.IntN(n)]
			c.lie(z)
			if c.fenced[roster.Process{Name: z.name, Identity: address(z), Pid: z.pid}] {
				if err := c.hello(z); !errors.Is(err, millrace.ErrFenced) {
					c.t.Fatalf("a fenced process came back: %v", err)
				}
				c.refused++
			}
		}
	case 9:
		c.lie(p)
	case 10, 11:
		c.wait(time.Duration(c.rng.IntN(700)) * time.Millisecond)
	case 12, 13, 14, 15:
		c.come(name)
	case 16, 17:
		c.consume()
	case 18, 19, 20, 21, 22, 23:
		c.offer(p, 1+c.rng.IntN(40))
	default:
		c.obey(p)
	}
	c.turn()
}

// settle lets every process come back and carry out its orders.
func (c *cluster) settle() {
	for range 8 {
		for _, name := range slots {
			if _, ok := c.slots[name]; ok {
				c.come(name)
			}
		}
		for busy := true; busy; {
			busy = false
			for _, name := range slots {
				for c.obey(c.slots[name]) {
					busy = true
				}
				busy = c.offer(c.slots[name], 1000) || busy
			}
		}
		c.wait(600 * time.Millisecond)
	}
}

func (c *cluster) run(events int, below uint64) {
	for range events {
		c.happen()
	}
	c.m.roster.Resize(3)
	c.settle()
	for range 5 * below {
		if c.m.s.Watermark >= below {
			return
		}
		c.consume()
		c.settle()
	}
	c.t.Fatalf("the run stands at %v: %s", c.m.s, c.m.Waiting().Text)
}

// TestFaultsOfLoadersChangeNoPlan: at the end every stripe is read and, with shadows, protected.
func TestFaultsOfLoadersChangeNoPlan(t *testing.T) {
	const below = 25
	golden := newCluster(t, 0, slots...)
	golden.run(0, below)
	want := golden.plans()
	var refused, promoted int
	for seed := range uint64(150) {
		c := newCluster(t, seed, slots[:2+seed%3]...)
		c.run(500, below)
		n := min(len(want), len(c.plans()))
		if got := c.plans(); n < below || !slices.Equal(got[:n], want[:n]) {
			t.Fatalf("seed %d: other plans", seed)
		}
		for _, src := range c.cfg.Sources {
			for stripe := range src.Stripes {
				if now := reader(c.m, src.Name, uint32(stripe)); now.Name == "" ||
					c.cfg.Shadows > 0 && now.Standby == nil {
					t.Fatalf("seed %d: %s/%d is left to %v", seed, src.Name, stripe, now)
				}
			}
		}
		refused, promoted = refused+c.refused, promoted+c.promoted
	}
	if refused < 30 || promoted < 150 {
		t.Errorf("only %d fenced processes came back, and %d standbys took over", refused, promoted)
	}
}

package mixing

// group is the number of sources that Next compares one by one. More sources play a tournament of groups.
const group = 16

// tournament keeps the winner among many sources, so that Next looks at those alone whose turn may have changed. It is
// a binary tree over groups of sources. While shares, theta and the centre stay, the order of two sources within a tier
// does not depend on the charges placed since: both waits shrink by the same time. So a winner holds until one of its
// sources is charged, gets another size, or reaches a lower tier.
//
// The zero tournament holds nothing; the next winner is found anew.
type tournament struct {
	nodes []node // node k has the children 2k and 2k+1; the groups are the second half; node 0 is not used
	// rises has, per source, the charges placed since from which on it is in a lower tier; stale: not known.
	rises []int64
}

// node is a part of the sources.
type node struct {
	until  int64 // the charges placed since from which on the winner may be another one
	winner int32 // -1: none of these sources can be drawn
}

// Times that have passed, and that do not come.
const (
	stale = -1 << 63
	never = 1<<63 - 1
)

// clear forgets all winners.
func (t *tournament) clear() {
	for k := range t.nodes {
		t.nodes[k].until = stale
	}
	for i := range t.rises {
		t.rises[i] = stale
	}
}

// touch observes that a source has been charged or has another size.
func (t *tournament) touch(source int) {
	if t.nodes == nil {
		return
	}
	t.rises[source] = stale
	for k := len(t.nodes)/2 + source/group; k > 0 && t.nodes[k].until != stale; k /= 2 {
		t.nodes[k].until = stale
	}
}

// turn says when a source with a share and a segment is drawn. Turns of a lower tier come first.
type turn struct {
	tier        tier
	wait, share int64 // wait/share orders the turns of a tier; ties go to the smaller index
}

// tier is a part of the order of draws.
type tier uint8

const (
	free     tier = iota // the segment costs nothing
	eligible             // has covered theta of its segment; the one that is due first comes first
	behind               // has D + share*size > 0; the one that is due first comes first
	ahead                // has not; the one that reaches this first comes first
)

// turnOf returns the turn of a source with a share and a segment.
func (a *Apportioner) turnOf(i int) turn {
	account := &a.accounts[i]
	size, share := account.size, account.share
	deficit := account.base + share*a.since - a.centre
	covered := deficit + share*size
	switch {
	case size == 0:
		return turn{free, 0, 1}
	case covered >= a.theta*size:
		return turn{eligible, size*(One-a.theta) - deficit, share}
	case covered > 0:
		return turn{behind, size*(One-a.theta) - deficit, share}
	default:
		return turn{ahead, -covered, share}
	}
}

// isBefore reports whether a turn comes before another one, of a source with a smaller index.
func (t turn) isBefore(other turn) bool {
	return t.tier < other.tier || t.tier == other.tier && sooner(t.wait, t.share, other.wait, other.share) != 0
}

// winner returns the source that is drawn first of all, -1 if none can be drawn.
func (a *Apportioner) winner() int {
	t := &a.rounds
	if t.nodes == nil {
		groups := 1
		for groups*group < len(a.accounts) {
			groups *= 2
		}
		t.nodes, t.rises = make([]node, 2*groups), make([]int64, len(a.accounts))
		t.clear()
	}
	if t.nodes[1].until <= a.since {
		a.play(1)
	}
	return int(t.nodes[1].winner)
}

// play finds the winner of a node whose winner may have changed.
func (a *Apportioner) play(k int) {
	nodes := a.rounds.nodes
	if at := k - len(nodes)/2; at >= 0 {
		low, high := min(at*group, len(a.accounts)), min(at*group+group, len(a.accounts))
		nodes[k] = node{until: a.until(low, high), winner: int32(a.first(low, high))}
		return
	}
	left, right := &nodes[2*k], &nodes[2*k+1]
	if left.until <= a.since {
		a.play(2 * k)
	}
	if right.until <= a.since {
		a.play(2*k + 1)
	}
	winner := left.winner
	if winner < 0 || right.winner >= 0 && a.turnOf(int(right.winner)).isBefore(a.turnOf(int(winner))) {
		winner = right.winner
	}
	nodes[k] = node{until: min(left.until, right.until), winner: winner}
}

// until returns the charges placed since from which on one of the sources from low up to high is in a lower tier.
func (a *Apportioner) until(low, high int) int64 {
	least := int64(never)
	for i := low; i < high; i++ {
		if a.rounds.rises[i] <= a.since {
			a.rounds.rises[i] = a.rise(&a.accounts[i])
		}
		least = min(least, a.rounds.rises[i])
	}
	return least
}

// rise returns the charges placed since from which on a source is in a lower tier.
func (a *Apportioner) rise(of *account) int64 {
	size, share := of.size, of.share
	if size <= 0 || share == 0 {
		return never
	}
	covered := of.base + share*(a.since+size) - a.centre
	switch short := a.theta*size - covered; {
	case short <= 0: // eligible
		return never
	case covered > 0:
		return a.since + (short+share-1)/share
	default:
		return a.since - covered/share + 1
	}
}

package mixing

import (
	"fmt"
	"math/bits"
	"slices"
)

// Apportioner chooses the source of every next segment, without randomness, so that the mixture drawn follows its
// target at every prefix.
//
// The target of source i grows by share_i/One of every charge placed, with the share in force at that time: targets
// accumulate across milestones and ramps. Its deficit D_i is target minus placed; all deficits add up to 0. A charge
// while no source has a share counts for neither, because no target grows by it. With m sources that have positive
// shares, let theta = 1/(2m-2) (0 for m = 1). Next draws the source whose target is first to reach the end of its next
// segment, less theta of the segment: (size_i*(1-theta) - D_i) / share_i from now. It chooses among the sources that
// will have covered theta of that segment when it is placed (D_i + share_i*size_i >= theta*size_i). If there is none,
// it chooses among those with D_i + share_i*size_i > 0. Ties go to the smaller index. With charges of 1 that is
// Tijdeman's quota rule ("The chairman assignment problem", Discrete Mathematics 32, 1980). With charges in tokens it
// is akin to WF2Q (Bennett and Zhang, "WF2Q: Worst-case Fair Weighted Fair Queueing", 1996), with segments for packets.
//
// Bounds, with L the longest segment, while shares are constant and every source has its next segment ready:
//
//	B1  D_i > -L: only a source with D_i > -share_i*size_i is charged, with (1 - share_i) * size_i.
//	B2  D_i < 2L: take a segment of i that is due at d. Let t be the last time before its placement at which a
//	    segment due after d was chosen, of source k. At t, every other source with work due by d had
//	    D + share*size < theta*size. So its work due by d is below share*(d-t) + 2*theta*L, and the sum of all
//	    is below (d-t) + L. That is placed by d + size_k + L. While i waits,
//	    D_i <= (1-theta)*size_i + share_i * (size_k + L - size_i) < 2L.
//	B3  with charges of 1, |D_i| <= 1 - 1/(2m-2): Tijdeman's theorem.
//
// If shares change, no rule without knowledge of the future keeps B2 for every sequence of changes: it would win the
// cup game, in which an adversary forces ln K. B3 cannot be kept below 1 either. Half of 2^k equal sources are drawn,
// then the others get all weight, and so on. At the end more than one sample is owed to the last source
// (TestNoRuleWithoutForesightKeepsOne). B1 still holds as long as the same sources have positive shares. Then D_i <
// (m-1) * L holds too, because deficits add up to 0. Across random milestones, ramps and exhaustion,
// apportion_bounds_test.go measures less than 2L.
//
// Sources with a share of 0 are not drawn. They keep their deficits until they have a share again; a source that left
// keeps its deficit for ever. The deficits of the others then no longer add up to 0, and all bounds hold relative to
// their mean, the centre.
//
// An Apportioner has one owner and is not for concurrent use. Copies by assignment share their accounts; use Clone.
type Apportioner struct {
	accounts []account
	since    int64 // charges placed since the accounts were last folded
	centre   int64 // floor of the mean deficit of the sources with positive shares
	entitled int64 // sources with positive shares
	theta    int64 // Tijdeman's threshold in parts of One: floor(One / (2m-2)) for m sources with positive shares
	queue    queue // of many sources
}

// account holds one source. Its deficit, in parts of One, is base + share*since.
//
// Overflow: the products wrap and so does their sum, but only deficits are compared, and these fit. With segments of at
// most 2^21 tokens, B1 gives D_i > -2^21 * One = -2^51. Deficits add up to 0, so D_i < (K-1) * 2^51 < 2^63 for K <=
// 4096, with any shares. A change of the set of sources with positive shares moves the centre, and with it the bound,
// by at most one segment. c such changes are safe in any order while K * (c+1) * L < 2^33 tokens; measured deficits
// stay below 2^54. The deficit of a source that is withheld by negative sizes grows without bound, so it must Leave
// within 2^32 tokens.
type account struct {
	base  int64
	share int64
	size  int64 // the charge of the next segment; negative: there is none now
	left  bool
}

// Account is a source's part of an Apportioner's state.
type Account struct {
	Deficit int64  // target minus placed, in parts of One: divide by One for tokens or samples
	Share   uint32 // parts of One
	Left    bool   // by Leave
}

// NewApportioner returns an Apportioner of `sources` sources without shares and segments.
func NewApportioner(sources int) *Apportioner {
	a := &Apportioner{accounts: make([]account, sources)}
	for i := range a.accounts {
		a.accounts[i].size = -1
	}
	return a
}

// SetShares puts new shares in force, one per source, One in all, as Proportions.Shares gives them. A source with 0 is
// not drawn. A source that left gets nothing: a share given to it is divided among the others. Setting equal shares
// again changes nothing.
func (a *Apportioner) SetShares(shares []uint32) {
	if a.haveShares(shares) {
		return
	}
	a.fold()
	parts := make([]uint64, len(a.accounts))
	sum := uint64(0)
	for i := range min(len(parts), len(shares)) {
		if !a.accounts[i].left {
			parts[i] = uint64(shares[i])
			sum += parts[i]
		}
	}
	if sum != One {
		for i, s := range divide(parts, sum) {
			parts[i] = uint64(s)
		}
	}
	for i := range a.accounts {
		a.accounts[i].share = int64(parts[i])
	}
	a.recentre()
}

// haveShares reports whether exactly these shares are in force, none of them for a source that left.
func (a *Apportioner) haveShares(shares []uint32) bool {
	if len(shares) != len(a.accounts) {
		return false
	}
	for i, share := range shares {
		if a.accounts[i].share != int64(share) || a.accounts[i].left && share > 0 {
			return false
		}
	}
	return true
}

// SetSize sets the charge of source i's next segment: its tokens, or 1 or 0 if samples count. A negative size means
// that the source has no segment now.
func (a *Apportioner) SetSize(i int, size int64) {
	if a.accounts[i].size != size {
		a.accounts[i].size = size
		a.queue.touch(i)
	}
}

// Next returns the source to draw from, or -1 if no source with a positive share has a segment. A segment that costs
// nothing changes no deviation, so it is drawn at once. Its time grows with the logarithm of the number of sources.
//
// A source with a share must have a segment ready, or Leave. While it is withheld, the others move beyond their
// targets, evenly.
func (a *Apportioner) Next() int {
	if len(a.accounts) <= few {
		return a.first()
	}
	return a.queued()
}

// first returns the source that is drawn first, -1 if none can be drawn. It looks at every source.
func (a *Apportioner) first() int {
	best, bestWait, bestShare := int64(-1), int64(1<<62), int64(1) // later than any wait
	since, centre, theta := a.since, a.centre, a.theta
	for i := range a.accounts {
		account := &a.accounts[i]
		size, share := account.size, account.share
		if size <= 0 || share == 0 {
			if size == 0 && share > 0 {
				return i
			}
			continue
		}
		deficit := account.base + share*since - centre
		wait := size*(One-theta) - deficit // times share, until the segment is due
		// Whether a source is eligible and due first is unpredictable. Masks make the choice (all ones: yes), because
		// branches would be mispredicted.
		take := sooner(wait, share, bestWait, bestShare) &^ ((deficit + (share-theta)*size) >> 63)
		best ^= (best ^ int64(i)) & take
		bestWait ^= (bestWait ^ wait) & take
		bestShare ^= (bestShare ^ share) & take
	}
	if best < 0 {
		return a.firstAhead()
	}
	return int(best)
}

// firstAhead chooses if no source has covered theta of its segment. The deficits of the sources with shares add up to
// at least the sum of their centres. So at least one of all such sources has D + share*size > 0, unless it is withheld.
// If there is none, it takes the source that reaches this first.
func (a *Apportioner) firstAhead() int {
	best, bestIsAhead, bestWait, bestShare := -1, false, int64(0), int64(1)
	for i := range a.accounts {
		account := &a.accounts[i]
		size, share := account.size, account.share
		if size < 0 || share == 0 {
			continue
		}
		deficit := account.base + share*a.since - a.centre
		wait, isAhead := size*(One-a.theta)-deficit, deficit+share*size <= 0
		if isAhead {
			wait = -deficit - share*size
		}
		isSooner := isAhead == bestIsAhead && sooner(wait, share, bestWait, bestShare) != 0
		if best < 0 || bestIsAhead && !isAhead || isSooner {
			best, bestIsAhead, bestWait, bestShare = i, isAhead, wait, share
		}
	}
	return best
}

// sooner returns -1 if w1/s1 < w2/s2, else 0, for positive s1 and s2. It is exact: it compares w1*s2 < w2*s1 in signed
// 128-bit arithmetic.
func sooner(w1, s1, w2, s2 int64) int64 {
	h1, l1 := bits.Mul64(uint64(w1), uint64(s2))
	h2, l2 := bits.Mul64(uint64(w2), uint64(s1))
	h1 -= uint64(w1>>63) & uint64(s2) // the unsigned product of a negative w1 is 2^64*s2 too large
	h2 -= uint64(w2>>63) & uint64(s1)
	_, borrow := bits.Sub64(l1, l2, 0)
	return int64(h1-h2-borrow) >> 63 // shares are at most 2^30, so high words are below 2^30 in size
}

// Place charges source i for a segment: every target grows by its share of size, and i has received it. While no source
// has a share, Place changes nothing.
func (a *Apportioner) Place(i int, size int64) {
	if a.entitled == 0 {
		return
	}
	a.since += size
	a.accounts[i].base -= size << shareBits
	a.queue.touch(i)
	if a.accounts[i].share == 0 { // not chosen by Next: the mean of the others has moved
		a.recentre()
	}
}

// Leave removes an exhausted source for good: its deficit is frozen, and the others divide its share in proportion to
// theirs and its deficit evenly. Shares have 30 bits. After a large source has left, SetShares with the schedule's
// Proportions.Shares is more exact for small sources.
func (a *Apportioner) Leave(i int) {
	a.accounts[i].left = true
	a.SetShares(a.sharesInForce())
}

// Clone returns an independent copy.
func (a *Apportioner) Clone() *Apportioner {
	c := *a
	c.accounts, c.queue = slices.Clone(a.accounts), queue{}
	return &c
}

// State returns the accounts, one per source. RestoreApportioner continues from them, once every source's size is set.
func (a *Apportioner) State() []Account {
	state := make([]Account, len(a.accounts))
	for i, account := range a.accounts {
		state[i] = Account{Deficit: a.deficit(i), Share: uint32(account.share), Left: account.left}
	}
	return state
}

// RestoreApportioner returns the Apportioner with that State, without segments. It refuses deficits that do not add up
// to 0, shares with a sum other than One and 0, and a source that left with a share.
func RestoreApportioner(state []Account) (*Apportioner, error) {
	a := NewApportioner(len(state))
	deficits, shares := int64(0), uint64(0)
	for i, s := range state {
		if s.Left && s.Share > 0 {
			return nil, fmt.Errorf("restore apportionment: source %d left and has a share of %d", i, s.Share)
		}
		deficits += s.Deficit
		shares += uint64(s.Share)
		a.accounts[i] = account{base: s.Deficit, share: int64(s.Share), size: -1, left: s.Left}
	}
	if deficits != 0 || shares != One && shares != 0 {
		return nil, fmt.Errorf("restore apportionment: deficits add up to %d, not 0, or shares to %d, not %d", deficits,
			shares, One)
	}
	a.recentre()
	return a, nil
}

// deficit returns D_i in parts of One.
func (a *Apportioner) deficit(i int) int64 {
	return a.accounts[i].base + a.accounts[i].share*a.since
}

func (a *Apportioner) sharesInForce() []uint32 {
	shares := make([]uint32, len(a.accounts))
	for i, account := range a.accounts {
		shares[i] = uint32(account.share)
	}
	return shares
}

// fold brings since into the accounts before shares change.
func (a *Apportioner) fold() {
	for i := range a.accounts {
		a.accounts[i].base = a.deficit(i)
	}
	a.since = 0
}

// recentre recomputes the centre and theta. Placements among sources with shares do not change the centre: they add to
// one deficit as much as they take from the others.
func (a *Apportioner) recentre() {
	a.queue.clear()
	a.entitled = 0
	var high, low int64 // the sum of up to 2^31 deficits, in two halves
	for i, account := range a.accounts {
		if account.share > 0 {
			d := a.deficit(i)
			high += d >> 32
			low += d & (1<<32 - 1)
			a.entitled++
		}
	}
	a.centre, a.theta = 0, 0
	if a.entitled == 0 {
		return
	}
	if a.entitled > 1 {
		a.theta = One / (2*a.entitled - 2)
	}
	quotient, rest := floorDiv(high, a.entitled)
	tail, _ := floorDiv(rest<<32+low, a.entitled)
	a.centre = quotient<<32 + tail
}

// floorDiv returns the quotient rounded down and the remainder, for y > 0.
func floorDiv(x, y int64) (quotient, remainder int64) {
	quotient, remainder = x/y, x%y
	if remainder < 0 {
		quotient--
		remainder += y
	}
	return quotient, remainder
}

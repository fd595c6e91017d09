package mixing

import "math/bits"

// MaxPermutation is the largest domain of a Permutation.
const MaxPermutation = 1 << 62

// rounds is the number of rounds of the Feistel network. Four pass the tests of permutation_test.go too. Six leave a
// margin and take a third more time.
const rounds = 6

// Permutation is a keyed bijection of [0, n) with random access in constant time and memory.
//
// It is the generalised Feistel cipher of Black and Rogaway ("Ciphers with Arbitrary Finite Domains", 2002). i is split
// into (i mod a, i / a) in Z_a x Z_b. Each round adds a keyed function of one half to the other. A result outside [0,
// n) is enciphered again. a = ceil(sqrt n) and b = ceil(n / a), so a*b - n < a: for every n the chance of a second pass
// is below 1/sqrt(n). In a power-of-two domain it is up to one in two.
//
// It shuffles well; it is no encryption. A Permutation is read-only after NewPermutation and safe for concurrent use.
type Permutation struct {
	n, a, b    uint64
	reciprocal uint64 // floor((2^64-1) / a)
	keys       [rounds]uint64
}

// NewPermutation returns the permutation of [0, n) that key selects. n is at most MaxPermutation; a larger one is
// reduced to it. n of 0 gives the empty permutation.
func NewPermutation(n uint64, key Key) Permutation {
	n = min(n, MaxPermutation)
	a := max(ceilSqrt(n), 1)
	p := Permutation{n: n, a: a, b: (n + a - 1) / a, reciprocal: ^uint64(0) / a}
	key.expand(p.keys[:])
	return p
}

// Len returns n.
func (p *Permutation) Len() uint64 { return p.n }

// At returns the image of i. An i outside [0, n) is returned as it is.
func (p *Permutation) At(i uint64) uint64 {
	if i >= p.n {
		return i
	}
	for {
		if i = p.encipher(i); i < p.n {
			return i
		}
	}
}

// Inverse returns the i whose image is x. An x outside [0, n) is returned as it is.
func (p *Permutation) Inverse(x uint64) uint64 {
	if x >= p.n {
		return x
	}
	for {
		if x = p.decipher(x); x < p.n {
			return x
		}
	}
}

func (p *Permutation) encipher(i uint64) uint64 {
	r, l := p.split(i)
	l = addMod(l, round(r, p.keys[0], p.a), p.a)
	r = addMod(r, round(l, p.keys[1], p.b), p.b)
	l = addMod(l, round(r, p.keys[2], p.a), p.a)
	r = addMod(r, round(l, p.keys[3], p.b), p.b)
	l = addMod(l, round(r, p.keys[4], p.a), p.a)
	r = addMod(r, round(l, p.keys[5], p.b), p.b)
	return r*p.a + l
}

func (p *Permutation) decipher(x uint64) uint64 {
	r, l := p.split(x)
	for k := rounds - 2; k >= 0; k -= 2 {
		r = addMod(r, p.b-round(l, p.keys[k+1], p.b), p.b)
		l = addMod(l, p.a-round(r, p.keys[k], p.a), p.a)
	}
	return r*p.a + l
}

// split returns i / a and i mod a. The estimate by the reciprocal is at most one too small for i < 2^63, so one
// correction makes it exact.
func (p *Permutation) split(i uint64) (quotient, remainder uint64) {
	quotient, _ = bits.Mul64(i, p.reciprocal)
	remainder = i - quotient*p.a
	if remainder >= p.a {
		remainder -= p.a
		quotient++
	}
	return quotient, remainder
}

// round maps half to [0, m): a multiply-xorshift-multiply hash, reduced by its high bits (Lemire 2019), whose bias is
// below m/2^64 <= 2^-33.
func round(half, key, m uint64) uint64 {
	x := (half ^ key) * goldenRatio
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	high, _ := bits.Mul64(x, m)
	return high
}

// addMod returns x + y mod m for x < m, y <= m < 2^63.
func addMod(x, y, m uint64) uint64 {
	x += y
	if x >= m {
		x -= m
	}
	return x
}

// ceilSqrt returns the smallest r with r*r >= n, for n <= 2^62.
func ceilSqrt(n uint64) uint64 {
	var r uint64
	for bit := uint64(1) << 31; bit > 0; bit >>= 1 {
		if next := r | bit; next*next < n {
			r = next
		}
	}
	if r*r < n {
		r++
	}
	return r
}

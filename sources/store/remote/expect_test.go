package remote

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/sources"
	"millrace/sources/store/cache"
)

// randomRanges returns ascending ranges of a file, some of them neighbours, empty, long, or beyond the file.
func randomRanges(rng *rand.Rand, size int64) (out []sources.Range) {
	lengths, gaps := []int64{0, 1, 700, 5000, 3 << 20}, []int64{0, 1, 20 << 10, MostGap, MostGap + 1, 1 << 20}
	for at := int64(0); at < size; {
		at += gaps[rng.IntN(len(gaps))] + rng.Int64N(100)
		n := lengths[rng.IntN(len(lengths))]
		out = append(out, sources.Range{Start: at, End: at + n})
		if rng.IntN(4) > 0 {
			at += n
		}
	}
	return out
}

// TestExpectation: the slots ascend, hold every range inside the file, and hold no gap longer than MostGap.
func TestExpectation(t *testing.T) {
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 1))
		size, grain := 4<<20+rng.Int64N(1<<20), []int64{1, cache.BlockBytes}[seed%2]
		ranges := randomRanges(rng, size)
		p := newExpectation(ranges, grain, size)
		needed := make([]bool, size)
		for _, r := range ranges {
			for at := r.Start / grain * grain; r.Start < r.End && at < min((r.End+grain-1)/grain*grain, size); at++ {
				needed[at] = true
			}
		}
		last := int64(0)
		for _, s := range p.slots {
			if s.start < last || s.end <= s.start || s.end > size || s.end-s.start > pageBytes || s.start%grain != 0 {
				t.Fatalf("seed %d: slot %d … %d behind byte %d of %d", seed, s.start, s.end, last, size)
			}
			if i := slices.Index(needed[last:s.start], true); i >= 0 {
				t.Fatalf("seed %d: no slot has byte %d", seed, last+int64(i))
			}
			gap := 0
			for at := s.start; at < s.end; at++ {
				if gap++; needed[at] {
					gap = 0
				} else if gap > MostGap+2*int(grain) {
					t.Fatalf("seed %d: slot %d … %d is not needed around byte %d", seed, s.start, s.end, at)
				}
			}
			last = s.end
		}
		if i := slices.Index(needed[last:], true); i >= 0 {
			t.Fatalf("seed %d: no slot has byte %d", seed, last+int64(i))
		}
	}
}

// TestExpectedRanges: reads of ranges that were announced have the right bytes, with and without a cache, by several
// readers of one file. All memory is free afterwards.
func TestExpectedRanges(t *testing.T) {
	s := newServer(t)
	want := content(5<<20 + 77)
	s.put(t, "a.bin", want)
	blocks, err := cache.OpenBlocks(cache.Config{Dir: t.TempDir(), Limit: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer blocks.Close()
	for _, kept := range []*cache.Blocks{nil, blocks} {
		h := NewHost(Options{Cache: kept, Ahead: 3 << 20})
		f := open(t, h.Files("web", Storage{Endpoint: s.url, Region: "us-east-1"}), "s3://data/a.bin")
		var group sync.WaitGroup
		for seed := range uint64(4) {
			group.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 9))
				ranges := randomRanges(rng, f.Size())
				done := sources.Expect(f, func() []sources.Range { return ranges })
				defer done()
				for _, r := range ranges {
					r.Start, r.End = min(r.Start, f.Size()), min(r.End, f.Size())
					if r.Start == r.End || rng.IntN(9) == 0 {
						continue // a reader may leave a range out
					}
					p := make([]byte, r.End-r.Start)
					if err := sources.ReadFull(f, p, r.Start); err != nil || !bytes.Equal(p, want[r.Start:r.End]) {
						t.Errorf("bytes %d … %d: %v", r.Start, r.End, err)
					}
				}
			})
		}
		group.Wait()
		f.Close()
		if h.room.free != 3<<20 {
			t.Errorf("%d bytes of memory are free, want %d", h.room.free, 3<<20)
		}
	}
}

// TestExpectedAtOnce: ranges that lie apart are asked for at the same time, and neighbours with one request.
func TestExpectedAtOnce(t *testing.T) {
	const apart, beside = 20, 10
	var mu sync.Mutex
	asked, all := 0, make(chan struct{})
	url := zeros(t, 64<<20, func(_ int64, _ http.ResponseWriter) bool {
		mu.Lock()
		if asked++; asked == apart {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
		case <-time.After(time.Minute):
			t.Errorf("ranges are asked for one after the other")
		}
		return false
	})
	h := NewHost(Options{})
	f := open(t, h.Files("web", Storage{}), url)
	var ranges []sources.Range
	for i := range int64(apart * beside) {
		at := i/beside<<21 + i%beside*10_000
		ranges = append(ranges, sources.Range{Start: at, End: at + 500})
	}
	done := sources.Expect(f, func() []sources.Range { return ranges })
	for _, r := range ranges {
		if err := sources.ReadFull(f, make([]byte, 500), r.Start); err != nil {
			t.Fatal(err)
		}
	}
	done()
	x := figures(h)
	if x.Requests != apart || x.Used != apart*beside*500 || x.Fetched != apart*(9*10_000+500) {
		t.Errorf("%d requests, %d bytes used, %d fetched", x.Requests, x.Used, x.Fetched)
	}
}

// TestOneFetchOfABlock: readers that need a block of the cache at the same time fetch it once.
func TestOneFetchOfABlock(t *testing.T) {
	const readers = 8
	url := zeros(t, 3*cache.BlockBytes, func(int64, http.ResponseWriter) bool {
		time.Sleep(20 * time.Millisecond)
		return false
	})
	blocks, err := cache.OpenBlocks(cache.Config{Dir: t.TempDir(), Limit: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer blocks.Close()
	h := NewHost(Options{Cache: blocks})
	f := open(t, h.Files("web", Storage{}), url)
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			if err := sources.ReadFull(f, make([]byte, 1000), cache.BlockBytes+5000); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if x := figures(h); x.Requests != 1 || x.Fetched != cache.BlockBytes || x.Used != readers*1000 {
		t.Errorf("%d requests, %d bytes fetched, %d used", x.Requests, x.Fetched, x.Used)
	}
}

package cache_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"millrace"
	"millrace/sources/store/cache"
)

func blockOf(seed uint64, n int) []byte {
	out, rng := make([]byte, n), rand.New(rand.NewPCG(seed, 1))
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
}

func openBlocks(t *testing.T, dir string, limit int64) *cache.Blocks {
	t.Helper()
	b, err := cache.OpenBlocks(cache.Config{Dir: dir, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// hasBlock fills p with a whole block.
func hasBlock(b *cache.Blocks, key millrace.Digest, block int64, p []byte) bool {
	off := block * cache.BlockBytes
	return b.ReadAt(key, p, off, off+int64(len(p))) == len(p)
}

// TestBlocksAreKept: another process reads the blocks that one wrote, also while both write.
func TestBlocksAreKept(t *testing.T) {
	dir := t.TempDir()
	a, b := openBlocks(t, dir, 1<<30), openBlocks(t, dir, 1<<30)
	key, other := millrace.Digest{1}, millrace.Digest{2}
	var group sync.WaitGroup
	for _, store := range []*cache.Blocks{a, b} {
		group.Go(func() {
			for n := range int64(20) {
				store.Write(key, n*40, blockOf(uint64(n), cache.BlockBytes))
			}
			store.Write(key, 1000, blockOf(99, 777)) // the last one of a file
		})
	}
	group.Wait()
	for _, store := range []*cache.Blocks{a, b, openBlocks(t, dir, 1<<30)} {
		p := make([]byte, cache.BlockBytes)
		for n := range int64(20) {
			if !hasBlock(store, key, n*40, p) || !bytes.Equal(p, blockOf(uint64(n), cache.BlockBytes)) {
				t.Fatalf("block %d is lost", n*40)
			}
			if hasBlock(store, key, n*40+1, p) || hasBlock(store, other, n*40, p) {
				t.Fatal("a block is there that nobody wrote")
			}
		}
		if !hasBlock(store, key, 1000, p[:777]) || !bytes.Equal(p[:777], blockOf(99, 777)) {
			t.Fatal("a short block is wrong")
		}
	}
}

// TestTornBlocksAreMissed: a block with any wrong byte, and a file that ends early, have no block.
func TestTornBlocksAreMissed(t *testing.T) {
	dir := t.TempDir()
	key, p := millrace.Digest{1}, make([]byte, cache.BlockBytes)
	b := openBlocks(t, dir, 1<<30)
	for n := range int64(8) {
		b.Write(key, n, blockOf(uint64(n), cache.BlockBytes))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.blocks"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v", files, err)
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for try := range 60 {
		bad := bytes.Clone(good)
		if try%3 == 0 {
			bad = bad[:rng.IntN(len(bad))]
		} else {
			bad[rng.IntN(len(bad)>>(try%2*6))] ^= 1 << rng.IntN(8)
		}
		if err := os.WriteFile(files[0], bad, 0o644); err != nil {
			t.Fatal(err)
		}
		again := openBlocks(t, dir, 1<<30)
		lost := 0
		for n := range int64(8) {
			want := blockOf(uint64(n), cache.BlockBytes)
			if !hasBlock(again, key, n, p) {
				lost++
				again.Write(key, n, want)
			} else if !bytes.Equal(p, want) {
				t.Fatalf("block %d has wrong bytes", n)
			}
			if !hasBlock(again, key, n, p) || !bytes.Equal(p, want) {
				t.Fatalf("block %d cannot be mended", n)
			}
		}
		if try%3 == 0 && lost == 0 {
			t.Fatal("a file that ends early has all blocks")
		}
		again.Close()
	}
}

// TestBlocksHaveALimit: the files never exceed the limit, and parts of earlier runs make room.
func TestBlocksHaveALimit(t *testing.T) {
	dir := t.TempDir()
	const limit = 8 * cache.BlockBytes
	b := openBlocks(t, dir, limit)
	for n := range int64(20) {
		b.Write(millrace.Digest{byte(n)}, 0, blockOf(uint64(n), cache.BlockBytes))
	}
	b.Close()
	old := time.Now().Add(-time.Hour)
	files, _ := filepath.Glob(filepath.Join(dir, "*.blocks"))
	for _, f := range files {
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
	next := openBlocks(t, dir, limit)
	next.Write(millrace.Digest{200}, 0, blockOf(200, cache.BlockBytes))
	if !hasBlock(next, millrace.Digest{200}, 0, make([]byte, cache.BlockBytes)) {
		t.Error("no part of an earlier run made room")
	}
	files, _ = filepath.Glob(filepath.Join(dir, "*.blocks"))
	if len(files) > 9 || len(files) < 2 {
		t.Errorf("%d files for a limit of 8 blocks", len(files))
	}
}

// TestRangesEndAtMissingBlocks: a range has its bytes up to the first block that is not there, over the border of two
// files of the cache too, when its blocks are read for the first time and again.
func TestRangesEndAtMissingBlocks(t *testing.T) {
	key, from := millrace.Digest{1}, int64(254) // a file of the cache ends behind block 255
	want := blockOf(3, 5*cache.BlockBytes-1000)
	size := from*cache.BlockBytes + int64(len(want))
	dir := t.TempDir()
	b := openBlocks(t, dir, 1<<30)
	for n := range int64(5) {
		b.Write(key, from+n, want[n*cache.BlockBytes:min((n+1)*cache.BlockBytes, int64(len(want)))])
	}
	rng := rand.New(rand.NewPCG(7, 8))
	again, gap := openBlocks(t, dir, 1<<30), millrace.Digest{2}
	for n := range int64(5) {
		if n != 3 {
			b.Write(gap, from+n, want[n*cache.BlockBytes:min((n+1)*cache.BlockBytes, int64(len(want)))])
		}
	}
	for try := range 100 {
		of, end := key, int64(len(want))
		if try%2 == 1 {
			of, end = gap, 3*cache.BlockBytes
		}
		at := rng.Int64N(end)
		p := make([]byte, rng.IntN(len(want)))
		stop := min(at+int64(len(p)), end)
		got := int64(again.ReadAt(of, p, from*cache.BlockBytes+at, size))
		if got != stop-at || !bytes.Equal(p[:got], want[at:stop]) {
			t.Fatalf("%d bytes from byte %d on: %d are there, want %d", len(p), at, got, stop-at)
		}
	}
	if again.Has(gap, (from+2)*cache.BlockBytes, cache.BlockBytes+1) || !again.Has(gap, from*cache.BlockBytes, 5) {
		t.Error("the cache does not know the blocks that it has")
	}
}

package seal

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

// TestEach: messages have the digests that x/crypto gives them, of all lengths around a block and in any number.
func TestEach(t *testing.T) {
	if !hasLanes() {
		t.Log("this processor hashes one message at a time")
	}
	rng := rand.New(rand.NewPCG(3, 1))
	lengths := []int{0, 1, 33, 127, 128, 129, 255, 256, 257, 1000, 5 * blockSize}
	for _, n := range []int{0, 1, 2, width - 1, width, width + 1, 3*width + 5, 500} {
		messages := make([][]byte, n)
		for i := range messages {
			messages[i] = make([]byte, lengths[rng.IntN(len(lengths))])
			for k := range messages[i] {
				messages[i][k] = byte(rng.Uint32())
			}
		}
		digests, asked := make([]millrace.Digest, n), 0
		each(digests, func(b []byte, i int) []byte {
			if i != asked || len(b) != 0 {
				t.Fatalf("%d messages: number %d is asked for, want %d, into %d bytes", n, i, asked, len(b))
			}
			asked++
			return append(b, messages[i]...)
		})
		for i, m := range messages {
			h, err := blake2b.New(len(digests[i]), nil)
			if err != nil {
				t.Fatal(err)
			}
			h.Write(m)
			if got := digests[i]; !slices.Equal(got[:], h.Sum(nil)) {
				t.Fatalf("%d messages: number %d of %d bytes has digest %s", n, i, len(m), got)
			}
		}
	}
}

package jsonl

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// unquoteBoth checks that both ways copy the same, and that the faster one writes into its room alone.
func unquoteBoth(t *testing.T, in []byte) {
	t.Helper()
	const guard = 0xa5
	want := make([]byte, len(in)+blockReach)
	wantRead, wantWrote := unquoteWords(want, in)
	memory := bytes.Repeat([]byte{guard}, len(in)+2*blockReach)
	read, wrote := unquote(memory[:len(in)+blockReach], in[:len(in):len(in)])
	if read != wantRead || wrote != wantWrote || !bytes.Equal(memory[:wrote], want[:wantWrote]) {
		t.Fatalf("unquote(%q) read %d and wrote %q, want %d and %q", in, read, memory[:wrote], wantRead,
			want[:wantWrote])
	}
	for i, c := range memory[len(in)+blockReach:] {
		if c != guard {
			t.Fatalf("unquote(%q) wrote %d bytes behind its room", in, i+1)
		}
	}
}

func TestEveryEscapeAtEveryPlaceIsReplaced(t *testing.T) {
	parts := []string{`\n`, `\"`, `\\`, `\/`, `\t\r`, `\b\f`, `\u00e9`, `"`, "\n", "\x00", "\x1f", " ", `\`, `\x`}
	for _, around := range []string{"a", "é", `\n`, `\\`, `a\"`} {
		text := strings.Repeat(around, 400/len(around))
		for _, part := range parts {
			for at := 0; at <= len(text); at += len(around) {
				unquoteBoth(t, []byte(text[:at]+part+text[at:]))
				unquoteBoth(t, []byte(text[at:]+part))
			}
		}
	}
}

func TestEverySecondByteOfAnEscapeIsJudgedAlike(t *testing.T) {
	for c := range 256 {
		text := append(append(bytes.Repeat([]byte("a"), 200), '\\', byte(c)), bytes.Repeat([]byte("b"), 300)...)
		unquoteBoth(t, text)
		read, _ := unquote(make([]byte, len(text)+blockReach), text)
		if (read == len(text)) != (escapeOf(byte(c)) != 0) {
			t.Fatalf("escape of byte %#x: %d bytes of %d were read", c, read, len(text))
		}
	}
}

func TestRandomStringsAreCopiedAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "bc", "é", "中文", `\n`, `\"`, `\\`, strings.Repeat("plain ", 20)}
	ends := []string{"", `"`, `\u0041`, "\x01", `\`, `\q`}
	for range 20000 {
		var b []byte
		for size := rng.IntN(700); len(b) < size; {
			b = append(b, parts[rng.IntN(len(parts))]...)
		}
		unquoteBoth(t, append(b, ends[rng.IntN(len(ends))]+strings.Repeat("x", rng.IntN(200))...))
	}
}

func FuzzUnquote(f *testing.F) {
	f.Add([]byte(strings.Repeat(`some text\n`, 30) + `"more`))
	f.Add([]byte(strings.Repeat(`\\`, 130) + `\`))
	f.Fuzz(func(t *testing.T, b []byte) {
		unquoteBoth(t, b)
		unquoteBoth(t, bytes.Repeat(b, 1+300/(len(b)+1)))
	})
}

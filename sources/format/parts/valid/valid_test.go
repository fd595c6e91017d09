package valid

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// parts are characters at the borders of UTF-8's lengths, and bytes that are none.
var parts = []string{
	"a", "\x00", "\x7f", "\u0080", "é", "\u07ff", "\u0800", "中", "\ud7ff", "\ue000", "\uffff", "\U00010000", "😀",
	"\U0010ffff", "\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
	"\xed\xbf\xbf", "\xe1\x80", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
	"\xf1\x80", "\xf1\x80\x80", "\xf8\x88\x80\x80\x80", "\xfe", "\xff",
}

func same(t *testing.T, b []byte) {
	t.Helper()
	if got, want := UTF8(b), utf8.Valid(b); got != want {
		t.Fatalf("UTF8(%q) = %t, want %t", b, got, want)
	}
}

func TestEveryPartAtEveryPlaceIsJudgedLikeUTF8Valid(t *testing.T) {
	for _, around := range []string{"a", "é", "中", "😀"} {
		text := strings.Repeat(around, 320/len(around))
		for _, part := range parts {
			for at := 0; at <= len(text); at += len(around) {
				same(t, []byte(text[:at]+part+text[at:]))
			}
		}
	}
}

func TestEveryPairOfPartsAtABorderIsJudgedLikeUTF8Valid(t *testing.T) {
	for _, one := range parts {
		for _, other := range parts {
			for at := 58; at < 66; at++ {
				text := strings.Repeat("a", at) + one + other
				same(t, []byte(text+strings.Repeat("b", 256-len(text))))
				same(t, []byte(strings.Repeat("a", 256-at)+one+other))
			}
		}
	}
}

func TestEveryTwoBytesAreJudgedLikeUTF8Valid(t *testing.T) {
	text := bytes.Repeat([]byte("a"), 3*blockBytes)
	for i := range 1 << 16 {
		for _, at := range []int{10, blockBytes - 1, 2*blockBytes - 33} {
			text[at], text[at+1] = byte(i), byte(i>>8)
			same(t, text)
			text[at], text[at+1] = 'a', 'a'
		}
	}
}

func TestRandomTextsAreJudgedLikeUTF8Valid(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	valids := 0
	for range 20000 {
		var b []byte
		good := rng.IntN(2) == 0
		for size := rng.IntN(600); len(b) < size; {
			part := parts[rng.IntN(len(parts))]
			if !good || utf8.ValidString(part) {
				b = append(b, strings.Repeat(part, 1+rng.IntN(3))...)
			}
		}
		from := rng.IntN(len(b) + 1)
		same(t, b)
		same(t, b[from:])
		if utf8.Valid(b) {
			valids++
		}
	}
	if valids < 5000 {
		t.Fatalf("%d of 20000 texts are valid", valids)
	}
}

func FuzzUTF8(f *testing.F) {
	f.Add([]byte(strings.Repeat("aé中😀", 40)))
	f.Add([]byte(strings.Repeat("a", 300) + "\xe4\xb8"))
	f.Fuzz(func(t *testing.T, b []byte) {
		same(t, b)
		if len(b) > 0 { // short inputs too at all places of a block
			for _, n := range []int{2*blockBytes + 1, 3*blockBytes - len(b)%blockBytes} {
				same(t, append(bytes.Repeat([]byte("a"), n), b...))
				same(t, append(append(bytes.Repeat([]byte("a"), n), b...), bytes.Repeat([]byte("a"), blockBytes)...))
			}
		}
	})
}

func BenchmarkUTF8(b *testing.B) {
	ascii := []byte(strings.Repeat("the quick brown fox ", 95))
	for name, text := range map[string][]byte{
		"ascii": ascii, "some": append(bytes.Clone(ascii), "é"...), "chinese": []byte(strings.Repeat("中文文本", 158)),
		"short": ascii[:150],
	} {
		for way, check := range map[string]func([]byte) bool{"ours": UTF8, "utf8": utf8.Valid} {
			b.Run(name+"/"+way, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					check(text)
				}
			})
		}
	}
}

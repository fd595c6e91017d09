package vocab

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pkoukk/tiktoken-go-loader/assets"
)

func published(t *testing.T, name string) *Vocabulary {
	t.Helper()
	raw, err := assets.Assets.ReadFile(name + ".tiktoken")
	if err != nil {
		t.Fatal(err)
	}
	v, err := ReadTiktoken(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPackAndUnpack(t *testing.T) {
	want := published(t, "r50k_base")
	packed, err := want.Pack()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	if got.Len() != want.Len() {
		t.Fatalf("%d tokens, want %d", got.Len(), want.Len())
	}
	for id := range uint32(want.Len()) {
		left, right, ok := got.Pair(id)
		wantLeft, wantRight, wantOK := want.Pair(id)
		if !bytes.Equal(got.Token(id), want.Token(id)) || left != wantLeft || right != wantRight || ok != wantOK {
			t.Fatalf("token %d is %q of %d and %d, want %q of %d and %d", id, got.Token(id), left, right,
				want.Token(id), wantLeft, wantRight)
		}
	}
	for b := range 256 {
		if got.Byte(byte(b)) != want.Byte(byte(b)) || len(got.Token(got.Byte(byte(b)))) != 1 {
			t.Errorf("byte %d is token %d", b, got.Byte(byte(b)))
		}
	}
	for _, cut := range []int{0, 1, len(packed) / 2, len(packed) - 1} {
		if _, err := Unpack(packed[:cut]); err == nil {
			t.Errorf("%d of %d bytes unpack", cut, len(packed))
		}
	}
}

func singles() [][]byte {
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	return tokens
}

// A token's pair is the last merge of its bytes, not any two tokens that spell it.
func TestPairs(t *testing.T) {
	tokens := append(singles(), []byte("bc"), []byte("ab"), []byte("abc"), []byte("abcd"), nil, []byte("xyz"))
	v, err := fromTokens(tokens)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint32][2]uint32{256: {'b', 'c'}, 257: {'a', 'b'}, 258: {'a', 256}, 259: {258, 'd'}} {
		if left, right, ok := v.Pair(id); !ok || left != want[0] || right != want[1] {
			t.Errorf("%q is of %d and %d, want %v", v.Token(id), left, right, want)
		}
	}
	for _, id := range []uint32{'a', 260, 261} {
		if _, _, ok := v.Pair(id); ok {
			t.Errorf("token %d, %q, has a pair", id, v.Token(id))
		}
	}
	if _, err := v.Pack(); err == nil || !strings.Contains(err.Error(), "token 260") {
		t.Errorf("a vocabulary with an unused rank packs: %v", err)
	}
}

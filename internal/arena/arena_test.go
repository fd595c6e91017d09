package arena

import "testing"

// TestAPeerOpensAnArena by its name.
func TestAPeerOpensAnArena(t *testing.T) {
	a, err := Host{}.Create(1_000_001)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	peer, err := Host{}.Open(a.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if peer.Tokens[1_000_000] = 7; len(a.Tokens) != 1_000_001 || a.Tokens[1_000_000] != 7 {
		t.Errorf("%d tokens, the last is %d", len(a.Tokens), a.Tokens[len(a.Tokens)-1])
	}
}

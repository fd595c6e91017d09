package hf

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Added is an added token.
type Added struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"` // it matches in the text in normal form
	Special    bool   `json:"special"`
}

// Sides returns the conditions of a token that is not special on the text beside it, as bits.
func (a *Added) Sides() (bits byte) {
	for i, is := range []bool{a.SingleWord, a.LStrip, a.RStrip} {
		if is && !a.Special {
			bits |= 1 << i
		}
	}
	return bits
}

// place returns the place of the added token with a text, or -1.
func (t *Tokenizer) place(text string) int {
	return slices.IndexFunc(t.Added, func(a Added) bool { return a.Content == text })
}

// merge takes the tokens of added_tokens_decoder: their flags replace those of tokenizer.json, and further tokens are
// appended, as transformers does. ids are those of the model's tokens.
func (t *Tokenizer) merge(more map[uint32]Added, ids map[string]uint32) error {
	next := uint32(0)
	for _, id := range ids {
		next = max(next, id+1)
	}
	for _, a := range t.Added {
		next = max(next, a.ID+1)
	}
	for _, id := range slices.Sorted(maps.Keys(more)) {
		a := more[id]
		a.ID = id
		own, isModels := ids[a.Content]
		switch i := t.place(a.Content); {
		case i >= 0 && t.Added[i].ID == id:
			t.Added[i] = a
		case i >= 0:
			return contradicts(a, fmt.Sprintf("has the id %d among the added_tokens of tokenizer.json", t.Added[i].ID))
		case isModels && own != id:
			return contradicts(a, fmt.Sprintf("has the id %d in model.vocab", own))
		case !isModels && id != next:
			return contradicts(a, fmt.Sprintf("is not so among the added_tokens of tokenizer.json, "+
				"and the next free id is %d", next))
		default:
			t.Added = append(t.Added, a)
			next = max(next, id+1)
		}
	}
	return nil
}

func contradicts(a Added, what string) error {
	return &Error{fmt.Sprintf("tokenizer_config.json: added_tokens_decoder.%d: %q %s", a.ID, a.Content, what), cureSave}
}

// marks sets bos and eos as the files beside tokenizer.json name them. generation_config.json counts where no other
// file names one, and only if it has a single one: each of several ends a reply of the model. ids are those of the
// model's tokens. A mark that is a token of the model alone becomes an added token, as in transformers.
func (t *Tokenizer) marks(c *config, ids map[string]uint32) {
	for _, m := range []struct {
		to   *string
		name string
		from idList
	}{{&t.BOS, c.bos, c.bosID}, {&t.EOS, c.eos, c.eosID}} {
		if m.name != "" {
			*m.to = m.name
		} else if *m.to == "" && len(m.from) == 1 {
			*m.to = t.named(m.from[0], ids)
		}
		if id, ok := ids[*m.to]; ok && t.place(*m.to) < 0 {
			t.Added = append(t.Added, Added{ID: id, Content: *m.to, Special: true})
		}
	}
	if t.EOS == "" && len(c.eosID) > 1 {
		var names []string
		for _, id := range c.eosID {
			names = append(names, t.named(id, ids))
		}
		t.Ends = strings.Join(names, ", ")
	}
}

// checkIDs returns an error for an added token whose id in the file is not the one that the library gives it: that of
// the model's token, else the number of tokens before it. Special tokens other than bos and eos are in no document. ids
// are those of the model's tokens.
func (t *Tokenizer) checkIDs(ids map[string]uint32) error {
	next := uint32(len(ids))
	for i, a := range t.Added {
		want, isModels := ids[a.Content]
		if !isModels {
			want = next
			next++
		}
		if a.ID != want && (!a.Special || a.Content == t.BOS || a.Content == t.EOS) {
			return &Error{fmt.Sprintf("tokenizer.json: added_tokens[%d]: %q has the id %d, and the library tokenizers "+
				"gives it the id %d", i, a.Content, a.ID, want), cureSave}
		}
	}
	return nil
}

// named returns the text of an id; it is empty if there is none.
func (t *Tokenizer) named(id uint32, ids map[string]uint32) string {
	if i := slices.IndexFunc(t.Added, func(a Added) bool { return a.ID == id }); i >= 0 {
		return t.Added[i].Content
	}
	for text, other := range ids {
		if other == id {
			return text
		}
	}
	return ""
}

// Owner returns the token that keeps a text from being the special token of an id, because it is not special itself. It
// is empty if there is none.
func (t *Tokenizer) Owner(text string, id uint32) []byte {
	token := t.Token(id)
	if i := slices.IndexFunc(t.Added, func(a Added) bool { return a.ID == id }); i >= 0 {
		if t.Added[i].Special {
			return nil
		}
		token = []byte(t.Added[i].Content)
	}
	if string(token) == text {
		return nil
	}
	return token
}

// SetSpecials replaces all special tokens. None of the ids has a [Tokenizer.Owner].
func (t *Tokenizer) SetSpecials(specials map[string]uint32) {
	added := slices.DeleteFunc(slices.Clone(t.Added), func(a Added) bool {
		_, isNow := specials[a.Content]
		return a.Special || isNow
	})
	for text, id := range specials {
		added = append(added, Added{ID: id, Content: text, Special: true})
	}
	slices.SortFunc(added, func(a, b Added) int { return cmp.Compare(a.ID, b.ID) })
	t.Added = added
	if t.Pipeline == nil {
		return
	}
	t.Pipeline.Tokens = slices.Clone(t.Pipeline.Tokens) // the model has its own
	for text, id := range specials {
		if int(id) < len(t.Pipeline.Tokens) && !bytes.Equal(t.Pipeline.Tokens[id], []byte(text)) {
			t.Pipeline.Tokens[id] = []byte(text)
		}
	}
}

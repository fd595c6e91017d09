package config

import (
	"fmt"
	"reflect"

	"millrace/internal/app/config/decode"
	"millrace/internal/app/config/tree"
)

// maxSpecial is the highest id that a special token may have.
const maxSpecial = 1<<21 - 1

// Specials are the ids of special tokens by their texts. No id is there twice.
type Specials map[string]uint32

// DecodeNode reads ids by the texts of the tokens.
func (s *Specials) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping {
		d.WrongType(path, n, "a mapping from tokens to ids", d.MappingCure(path))
		return
	}
	if len(n.Entries) == 0 {
		d.Fail(path, n, decode.Name(path)+" is empty", d.MappingCure(path)+", or leave the key out")
		return
	}
	*s = make(Specials, len(n.Entries))
	texts := map[uint32]string{}
	for _, e := range n.Entries {
		at := decode.Join(path, e.Key.Text)
		d.Places[at] = e
		before := len(d.Errs)
		var id uint32
		d.Decode(at, e.Value, reflect.ValueOf(&id).Elem(), decode.Rules{Max: maxSpecial})
		if e.Key.Text == "" {
			d.Fail(at, e.Key, decode.Name(path)+" has a token without text", "write the token's text in quotes")
		}
		if first, taken := texts[id]; taken && len(d.Errs) == before {
			d.Fail(at, e.Value, fmt.Sprintf("%s gives id %d to %q and to %q", decode.Name(path), id, first, e.Key.Text), "give each token its own id")
		}
		texts[id] = e.Key.Text
		(*s)[e.Key.Text] = id
	}
}

func (v *validator) checkTokenizer() {
	t := v.c.Tokenizer
	if t == nil || !v.Sound("tokenizer") {
		return
	}
	switch {
	case t.Name == "" && t.Path == "":
		v.wrong("tokenizer.name", "`tokenizer` has neither `name` nor `path`", "write `name: gpt2`, or `path:` with a vocabulary file")
	case t.Name != "" && t.Path != "":
		v.wrongKey("tokenizer.path", "`tokenizer` has both `name` and `path`", "keep one of them")
	case isURL(t.Path):
		v.wrong("tokenizer.path", "`tokenizer.path` must be a file on this host, not "+tree.Quote(t.Path), hubCure)
	case t.Name != "" && t.Pattern != "":
		v.wrongKey("tokenizer.pattern", "`tokenizer` has both `name` and `pattern`",
			"leave `pattern` out: a built-in vocabulary has its own")
	}
}

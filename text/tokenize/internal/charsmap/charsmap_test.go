package charsmap

import (
	"testing"

	"millrace/text/tokenize/internal/oracletest"
)

func TestRewritesAsTokenizers(t *testing.T) {
	m, err := Parse(oracletest.File(t, "parts.charsmap"))
	if err != nil {
		t.Fatal(err)
	}
	var parts oracletest.Parts
	oracletest.JSON(t, "parts.json", &parts)
	for _, c := range parts.Cases {
		if got := string(m.Append(nil, []byte(c.Text))); got != c.Normal {
			t.Errorf("%q became %q, not %q", c.Text, got, c.Normal)
		}
	}
}

// TestLaterMarksJoinClusters has marks of Unicode 16 and 17, and the texts of tokenizers 0.23.3.
func TestLaterMarksJoinClusters(t *testing.T) {
	m, err := Parse(oracletest.File(t, "parts.charsmap"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"\u02d8\u1ae6x": " \u0306x", "\u02d8\u1ae6\u0301x": " \u0306\u1ae6\u0301x", "\n\u1ae6": " \u1ae6",
		"\u2460\u0897": "1\u0897", "\u02d8\u0897\u0301": " \u0306\u0897\u0301", "\u0085\u1ae6": "\u0085\u1ae6",
	} {
		if got := string(m.Append(nil, []byte(text))); got != want {
			t.Errorf("%+q became %+q, not %+q", text, got, want)
		}
	}
}

func TestRefusesBrokenRules(t *testing.T) {
	blob := oracletest.File(t, "parts.charsmap")
	for _, broken := range [][]byte{nil, blob[:3], blob[:4], blob[:1000], {0, 0, 0, 0, 0}, {255, 255, 255, 255, 0},
		append(blob[:len(blob):len(blob)], 'a')} {
		if _, err := Parse(broken); err == nil {
			t.Errorf("rules of %d bytes are accepted", len(broken))
		}
	}
}

func FuzzParse(f *testing.F) {
	blob := oracletest.File(f, "parts.charsmap")
	f.Add(blob, []byte("ｶﾞ é ①"))
	f.Add([]byte{4, 0, 0, 0, 0, 4, 0, 0, 'a', 0}, []byte("ab"))
	f.Fuzz(func(t *testing.T, blob, text []byte) {
		m, err := Parse(blob)
		if err != nil {
			return
		}
		m.Append(nil, text)
		if _, n := m.Longest(text); n > len(text) {
			t.Errorf("a rule of %d bytes for a text of %d", n, len(text))
		}
	})
}

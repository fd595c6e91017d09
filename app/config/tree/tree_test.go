package tree

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"millrace"
)

func read(t *testing.T, content string) *Document {
	t.Helper()
	d, errs := Read("mixture.yaml", []byte(content))
	if errs != nil {
		t.Fatal(errs)
	}
	return d
}

// shown writes a tree with the places of its nodes.
func shown(n *Node) string {
	at := fmt.Sprintf("@%d:%d+%d", n.Line, n.Column, n.Width)
	var parts []string
	switch n.Kind {
	case Scalar:
		return n.Text + at
	case Sequence:
		for _, i := range n.Items {
			parts = append(parts, shown(i))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	for _, e := range n.Entries {
		parts = append(parts, shown(e.Key)+"="+shown(e.Value))
	}
	return "{" + strings.Join(parts, " ") + "}"
}

// TestPlaces: each node has its line, its column in characters, and its width, in every way of writing.
func TestPlaces(t *testing.T) {
	for content, want := range map[string]string{
		"a: 1\nb:\n  c: xy # no\n":    "{a@1:1+1=1@1:4+1 b@2:1+1={c@3:3+1=xy@3:6+2}}",
		"\ufeffa: [x, 'é y', {b: 2}]": "{a@1:1+1=[x@1:5+1 é y@1:8+5 {b@1:16+1=2@1:19+1}]}",
		"a:\r\n- 1\r\n- b: 2\r\n":     "{a@1:1+1=[1@2:3+1 {b@3:3+1=2@3:6+1}]}",
		"---\né: x\n":                 "{é@2:1+1=x@2:4+1}",
	} {
		if got := shown(read(t, content).Root); got != want {
			t.Errorf("%q\ngot  %s\nwant %s", content, got, want)
		}
	}
}

// TestClasses: a scalar keeps its text as it is written, and the class that YAML gives it.
func TestClasses(t *testing.T) {
	d := read(t, "a: text\nb: '1'\nc: 0x1F\nd: 1.5\ne: true\nf: ~\ng:\nh: \"x\\ty\"\n")
	want := []struct {
		class Class
		text  string
	}{{Plain, "text"}, {Quoted, "1"}, {Number, "0x1F"}, {Number, "1.5"}, {Boolean, "true"}, {Null, "~"}, {Null, ""},
		{Quoted, "x\ty"}}
	for i, e := range d.Root.Entries {
		if e.Value.Class != want[i].class || want[i].class != Null && e.Value.Text != want[i].text {
			t.Errorf("%s is %q of class %d, want %+v", e.Key.Text, e.Value.Text, e.Value.Class, want[i])
		}
	}
}

// TestMistakes: what a file may not have is refused at its place, with a cure.
func TestMistakes(t *testing.T) {
	for content, want := range map[string]string{
		"":                                   "1:1: the file is empty",
		"a: 1\nb: 2\na: 3\n":                 "3:1: doubled key `a`",
		"a: &x 1\n":                          "1:4: YAML anchors are not allowed",
		"a: *x\n":                            "1:4: YAML aliases are not allowed",
		"a: 1\n<<: {b: 2}\n":                 "2:1: YAML merge keys are not allowed",
		"a: !!str 1\n":                       "1:4: YAML tags are not allowed",
		"a: 1\nb: |\n  text\n":               "2:4: YAML blocks of text are not allowed",
		"a: >-\n  text\n":                    "1:4: YAML blocks of text are not allowed",
		"? a\n: 1\n":                         "1:1: `? ` keys are not allowed",
		"a: 1\n---\nb: 2\n":                  "2:1: a second YAML document is not allowed",
		"a: 1\n\tb: 2\n":                     "2:1: cannot be read: a tab in the indentation",
		"a: 1\n  b: 2\n":                     "2:3: cannot be read: this line is indented further",
		"a: [1, 2\n":                         "cannot be read",
		"a: 'x\n":                            "cannot be read",
		"a: \x01\n":                          "1:4: control character U+0001",
		"a: b\xffc\n":                        "1:5: this is not UTF-8 text",
		"a: " + strings.Repeat("[", 30):      "nested too deeply",
		"a: " + strings.Repeat("x", MaxFile): "1:1: the file is larger than 1 MiB",
	} {
		_, errs := Read("mixture.yaml", []byte(content))
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) || errs[0].Cure == "" ||
			!strings.HasPrefix(errs[0].Error(), "mixture.yaml:") || !errors.Is(errs, millrace.ErrInvalid) {
			t.Errorf("%.60q: %v, want %s", content, errs, want)
		}
	}
}

// TestExcerpt: the caret stands under the place, also in a long line and behind wide characters.
func TestExcerpt(t *testing.T) {
	for line, c := range map[string]struct {
		column, width int
		want          string
	}{
		"a: 12 # x": {4, 2, "    1 | a: 12 # x\n      |    ^^"},
		"都: x":      {4, 1, "    1 | 都: x\n      |     ^"},
		"a\tb":      {9, 5, "    1 | a b\n      |    ^"},
		strings.Repeat("-", 150) + "x" + strings.Repeat("-", 49): {151, 1,
			"    1 | …" + strings.Repeat("-", 50) + "x" + strings.Repeat("-", 49) + "\n      | " +
				strings.Repeat(" ", 51) + "^"},
	} {
		if got := newText("m", line).Fail(1, c.column, c.width, "msg", "").Excerpt; got != c.want {
			t.Errorf("%q at %d:\ngot  %q\nwant %q", line, c.column, got, c.want)
		}
	}
}

// TestErrors are sorted by place, each once, and the first ten are printed.
func TestErrors(t *testing.T) {
	src := newText("m", strings.Repeat("line\n", 20))
	var errs Errors
	for line := 15; line > 0; line-- {
		errs = append(errs, src.Fail(line, 1, 1, "wrong", ""), src.Fail(line, 1, 1, "wrong", ""))
	}
	errs = errs.Sorted()
	text := errs.Error()
	if len(errs) != 15 || errs[0].Line != 1 || !strings.HasSuffix(text, "\n… and 5 more") ||
		strings.Count(text, "wrong") != maxShown {
		t.Errorf("%d errors, printed as\n%s", len(errs), text)
	}
	if far := src.Fail(99, 99, 9, "wrong\x1b", ""); far.Line != 20 || far.Column != 5 || far.Msg != "wrong\ufffd" {
		t.Errorf("a place outside of the file is %d:%d, %q", far.Line, far.Column, far.Msg)
	}
}

// TestOver: the keys of a mapping replace those of the file; all other keys come from the file, if they may.
func TestOver(t *testing.T) {
	d := read(t, "a: 1\nb: 2\nc: 3\nover: {b: 9}\n")
	over := d.Over(d.Root.Entries[3].Value, func(key string) bool { return key == "a" || key == "b" })
	if got := shown(over.Root); got != "{b@4:8+1=9@4:11+1 a@1:1+1=1@1:4+1}" {
		t.Error(got)
	}
	if len(d.Root.Entries) != 4 || len(d.Root.Entries[3].Value.Entries) != 1 {
		t.Errorf("the file is %s now", shown(d.Root))
	}
}

// TestPlace: a path that is not in the file is at the nearest mapping around it, whatever its names hold.
func TestPlace(t *testing.T) {
	d := read(t, "mixture: {weights: {v1.5: 2}}\n")
	mixture := d.Root.Entries[0]
	weights := mixture.Value.Entries[0]
	d.Places = map[string]Entry{"mixture": mixture, "mixture.weights": weights,
		"mixture.weights.v1.5": weights.Value.Entries[0]}
	for path, want := range map[string]string{
		"mixture.weights.v1.5":   "2@1:27+1 true",
		"mixture.weights.v1.6":   "weights@1:11+7 false",
		"mixture.weights[3]":     "weights@1:11+7 false",
		"mixture.unit":           "mixture@1:1+7 false",
		"sources.web.path[0].no": shown(d.Root) + " false",
	} {
		at, written := d.Place(path)
		if got := fmt.Sprint(shown(at), " ", written); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := shown(d.KeyOf("mixture.weights.v1.5")); got != "v1.5@1:21+4" {
		t.Error(got)
	}
}

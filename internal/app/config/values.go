package config

import (
	"fmt"
	"millrace/internal/app/config/tree"
	"slices"
	"strings"
	"unicode"
)

// setText keeps a decimal as written.
func (d *Decimal) setText(text string, c tree.Class) (problem, cure string) {
	if problem, cure = noNumber(text, c); problem != "" {
		return problem, cure
	}
	if _, problem = parseDecimal(text); problem != "" {
		return problem + ": " + tree.Quote(text), "write a decimal number from 0 to 999999999 with at most 9 digits after the point, as 0.3"
	}
	d.Text = text
	return "", ""
}

// noNumber finds what YAML takes for something else than a finite number.
func noNumber(text string, c tree.Class) (problem, cure string) {
	if c == tree.Quoted {
		return "must be a number, not a text in quotes", "leave the quotes out"
	}
	switch strings.ToLower(strings.TrimLeft(text, "+-")) {
	case ".nan", "nan":
		return "is not a number: " + tree.Quote(text), "write a decimal number of at least 0, as 0.3"
	case ".inf", "inf", "infinity":
		return "is infinite: " + tree.Quote(text), "write a decimal number of at least 0, as 0.3"
	}
	return "", ""
}

// setText reads a size.
func (b *Bytes) setText(text string, c tree.Class) (problem, cure string) {
	size, problem := parseBytes(text)
	if problem != "" {
		return problem + ": " + tree.Quote(text), "write a number of bytes or a size with a unit, as 512MiB or 1GB"
	}
	*b = size
	return "", ""
}

// setText reads auto or a number.
func (l *Loaders) setText(text string, c tree.Class) (problem, cure string) {
	if text == "auto" {
		l.Count = 0
		return "", ""
	}
	n, problem := parseDecimal(text)
	if problem != "" || c == tree.Quoted || !allDigits(text) || n == 0 || n/pow9 > maxLoaders || len(text) > 1 && text[0] == '0' {
		return "must be auto or a number of processes, not " + tree.Quote(text), fmt.Sprintf("write auto, or a whole number from 1 to %d", maxLoaders)
	}
	l.Count = uint32(n / pow9)
	return "", ""
}

// decodeNode reads one pattern or a list of them.
func (p *Patterns) decodeNode(d *decoder, path string, n *tree.Node) {
	items := n.Items
	if n.Kind == tree.Scalar {
		items = []*tree.Node{n}
	}
	if n.Kind == tree.Mapping {
		d.wrongType(path, n, "a path or a list of paths", "write one pattern, or `[a/*.jsonl, b/*.jsonl]`")
		return
	}
	if len(items) == 0 {
		d.fail(path, n, name(path)+" is an empty list", "write at least one file, directory or pattern")
	}
	for i, item := range items {
		at := path
		if n.Kind == tree.Sequence {
			at = fmt.Sprintf("%s[%d]", path, i)
			d.Places[at] = tree.Entry{Key: item, Value: item}
		}
		switch {
		case item.Kind != tree.Scalar:
			d.wrongType(at, item, "a path", "write one pattern an entry")
		case item.Class == tree.Number || item.Class == tree.Boolean || item.Class == tree.Null:
			d.fail(at, item, name(at)+" must be a path, not "+tree.Quote(item.Text), "put a path that looks like something else in quotes")
		case item.Text == "":
			d.fail(at, item, name(at)+" is empty", "write a file, a directory or a pattern")
		default:
			*p = append(*p, item.Text)
		}
	}
}

// maxSources and maxName bound what a plan and a state have to carry.
const (
	maxSources = 1024
	maxName    = 128 // bytes
)

// decodeNode reads sources by name.
func (s *Sources) decodeNode(d *decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping {
		d.wrongType(path, n, "a mapping from names to sources", "write it as `web: {path: web/*.jsonl}`")
		return
	}
	if len(n.Entries) == 0 {
		d.fail(path, n, "there is no source", "write at least one, as `web: {path: web/*.jsonl}`")
	}
	if len(n.Entries) > maxSources {
		d.fail(path, n.Entries[maxSources].Key, "too many sources", fmt.Sprintf("at most %d; several files can be one source", maxSources))
	}
	*s = make(Sources, len(n.Entries))
	for i, e := range n.Entries {
		at := join(path, e.Key.Text)
		d.Places[at] = e
		if why := badName(e.Key.Text); why != "" {
			d.fail(at, e.Key, "the name of this source "+why, "use letters, digits, - and _")
		}
		(*s)[i].Name = e.Key.Text
		d.decodeSource(at, e.Value, &(*s)[i])
	}
	slices.SortFunc(*s, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
}

// badName says what is wrong with a source's name. It frames digests and sits in file names, metrics and logs.
func badName(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > maxName:
		return fmt.Sprintf("is longer than %d bytes", maxName)
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune("`\"'\\#,=[]{}", r) }):
		return "holds a character that names do not have: " + tree.Quote(s)
	case strings.TrimSpace(s) != s:
		return "begins or ends with a space"
	}
	return ""
}

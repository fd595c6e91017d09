package lengths

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"millrace"
	"millrace/sources"
)

// Limits of a file.
const (
	mostTokens  = 1 << 24 // of a document
	mostRecords = 1 << 36 // of a file
	mostRuns    = 1 << 26 // lines with documents: 16 bytes each
	lineBytes   = 4 << 10 // of the longest line
)

// reader reads a file line by line.
type reader struct {
	name    string
	line    int
	columns []string // of CSV; nil before the first line that is not passed over
	json    bool
	runs    []run
}

func read(ctx context.Context, f sources.File) ([]run, error) {
	r := &reader{name: f.Name()}
	in := &cursor{file: f}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, lineBytes), lineBytes)
	for lines.Scan() {
		if r.line++; r.line%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if err := r.take(text); err != nil {
			return nil, err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		r.line++
		return nil, r.limited("write one document, or one count, a line", "is longer than %d bytes", lineBytes)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return r.runs, nil
}

func (r *reader) damaged(format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged,
		"read %s: line %d "+format+": write columns tokens, patches and count, the first line with their names",
		append([]any{r.name, r.line}, args...)...)
}

// cutCure is for a document that is too long.
const cutCure = "write it as several documents"

// limited returns the error of a line that passes a limit.
func (r *reader) limited(cure, what string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, "read %s: line %d %w", r.name, r.line,
		sources.Limited(cure, what, args...))
}

// take adds the documents of a line.
func (r *reader) take(text []byte) error {
	if r.columns == nil && !r.json {
		if r.json = text[0] == '{'; !r.json {
			if header, err := r.head(string(text)); header || err != nil {
				return err
			}
		}
	}
	if !r.json {
		return r.csv(string(text))
	}
	var doc struct {
		Tokens  *uint64 `json:"tokens"`
		Patches uint64  `json:"patches"`
		Count   *uint64 `json:"count"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return r.damaged("is no JSON object of whole numbers (%s)", err)
	}
	if doc.Tokens == nil {
		return r.damaged("has no tokens")
	}
	count := uint64(1)
	if doc.Count != nil {
		count = *doc.Count
	}
	return r.add(*doc.Tokens, doc.Patches, count)
}

// head reads the names of the columns. A file of one number a line has none.
func (r *reader) head(text string) (header bool, err error) {
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		r.columns = []string{"tokens"}
		return false, nil
	}
	seen := map[string]bool{}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if name == "length" { // the name in histograms of lengths
			name = "tokens"
		}
		if seen[name] || name != "tokens" && name != "patches" && name != "count" {
			return true, r.damaged("names no columns, or one twice: %q", text)
		}
		seen[name] = true
		r.columns = append(r.columns, name)
	}
	if !seen["tokens"] {
		return true, r.damaged("names no column tokens")
	}
	return true, nil
}

func (r *reader) csv(text string) error {
	cells := strings.Split(text, ",")
	if len(cells) != len(r.columns) {
		return r.damaged("has %d columns, and the first line names %d", len(cells), len(r.columns))
	}
	var tokens, patches uint64
	count := uint64(1)
	for i, cell := range cells {
		n, err := strconv.ParseUint(strings.TrimSpace(cell), 10, 64)
		if err != nil {
			return r.damaged("has %q for %s, which is no whole number", cell, r.columns[i])
		}
		switch r.columns[i] {
		case "tokens":
			tokens = n
		case "patches":
			patches = n
		default:
			count = n
		}
	}
	return r.add(tokens, patches, count)
}

func (r *reader) add(tokens, patches, count uint64) error {
	at := uint64(0)
	if n := len(r.runs); n > 0 {
		at = r.runs[n-1].end
	}
	switch {
	case tokens > mostTokens:
		return r.limited(cutCure, "has a document of %d tokens, more than %d", tokens, mostTokens)
	case patches > mostTokens:
		return r.limited(cutCure, "has a document of %d patches, more than %d", patches, mostTokens)
	case count > mostRecords-at:
		return r.limited("write several files", "brings the documents to more than %d", mostRecords)
	case len(r.runs) == mostRuns:
		return r.limited("write equal documents as one line with their count, or several files",
			"brings the lines with documents to more than %d", mostRuns)
	case count > 0:
		r.runs = append(r.runs, run{tokens: uint32(tokens), patches: uint32(patches), end: at + count})
	}
	return nil
}

// cursor reads a file from its beginning.
type cursor struct {
	file sources.File
	at   int64
}

// Read implements io.Reader.
func (c *cursor) Read(p []byte) (int, error) {
	n := min(int64(len(p)), c.file.Size()-c.at)
	if n == 0 {
		return 0, io.EOF
	}
	if err := sources.ReadFull(c.file, p[:n], c.at); err != nil {
		return 0, err
	}
	c.at += n
	return int(n), nil
}

package tokenfiles

import (
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"millrace/sources"
)

// mostMetadata bounds the bytes of a .ds.metadata.
const mostMetadata = 64 << 10

// checkMetadata compares datatrove's .ds.metadata with the ids, if it is there: `tokenizer|bytes of an id` and the
// number of ids, on a line each. It decides nothing, so one that cannot be read says nothing.
func (p *plan) checkMetadata() error {
	f, err := p.format.fs.Open(p.file.Name() + ".metadata")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Size() > mostMetadata {
		return nil
	}
	text, err := io.ReadAll(sources.NewReader(f, 0, f.Size()))
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	of := strings.LastIndexByte(lines[0], '|')
	width, err := strconv.Atoi(strings.TrimSpace(lines[0][of+1:]))
	if of >= 0 && err == nil && width != p.layout.DType.Size {
		return misfit(f, "it says that ids have %d bytes, and those of %s have %d; copy both again", width,
			p.file.Name(), p.layout.DType.Size)
	}
	if len(lines) < 2 {
		return nil
	}
	has := (p.layout.Size - p.layout.From) / int64(max(p.layout.DType.Size, 1))
	if count, err := strconv.ParseInt(strings.TrimSpace(lines[1]), 10, 64); err == nil && count != has {
		return misfit(f, "it says that there are %d ids, and %s has %d; copy both again", count, p.file.Name(), has)
	}
	return nil
}

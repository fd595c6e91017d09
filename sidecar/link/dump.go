package link

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"millrace"
)

// copies is what two loaders gave for one segment, as it is written down.
type copies struct {
	Source  string              `json:"source"`
	Attempt uint32              `json:"attempt"`
	Step    uint64              `json:"step"`
	Ordinal uint64              `json:"ordinal"`
	Offset  uint32              `json:"offset"`
	Tokens  map[string][]uint32 `json:"tokens"` // by loader
}

// dump writes both copies of a segment down and returns where.
func (l *Link) dump(p *millrace.Plan, source string, a *millrace.Assignment, tokens map[string][]uint32) (string, error) {
	if l.cfg.Dump == "" {
		return "no file", nil
	}
	name := fmt.Sprintf("differs-%s-%d-%d.json", strings.ReplaceAll(source, string(filepath.Separator), "_"), a.Ordinal, a.Offset)
	path := filepath.Join(l.cfg.Dump, name)
	text, err := json.Marshal(copies{Source: source, Attempt: uint32(p.Attempt), Step: uint64(p.Step), Ordinal: uint64(a.Ordinal), Offset: a.Offset, Tokens: tokens})
	if err != nil {
		return path, fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return path, fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}

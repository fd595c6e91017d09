// Package profile keeps the cost of reading each source of a mixture, as measured before a run on the real data. The
// files with the figures are beside the index. They decide how many stripes a source gets and which loaders read them,
// never a plan.
//
//	profile.go  Source, Read and Save: the figures and their file
//	facts.go    Load, Facts and ReadFacts: the figures that all processes of a run must have alike
package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"millrace/app/config"
)

// Source is the cost of reading a source. Scripts rely on the JSON names.
type Source struct {
	Source   string  `json:"source"`
	Work     float64 `json:"seconds_per_million_tokens"` // of one decoder: reading, unpacking and tokenising
	Reading  float64 `json:"reading_per_million_tokens"` // seconds of it that wait for files
	Bytes    float64 `json:"bytes_per_token"`            // that come from the files
	Resident int64   `json:"resident_bytes"`             // memory of a loader that has the source open
	Tokens   int64   `json:"tokens"`                     // that were made to measure this
}

// file is the name of the figures' file in an index directory. Each mixture file that uses the directory adds its own.
const file = "profile.json"

// key identifies a source: the settings that decide its documents and how they are read, its files, and the tokenizer.
func key(c *config.Config, s *config.Source) string {
	id, tokenizer := c.Identity(config.Facts{}), ""
	if t := c.Tokenizer; t != nil { // its vocabulary is not known everywhere
		tokenizer = t.Name + " " + t.Path
	}
	b, _ := json.Marshal([]any{s.Path, s.Root, c.Shuffle, id.Value("sources." + s.Name), tokenizer,
		c.KeepsTokens()}) // texts
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Read returns the figures of the sources of a configuration, in their order. A source that was not measured has the
// zero Source. A missing file is no error.
func Read(c *config.Config) ([]Source, error) {
	all, err := readAll(c)
	if err != nil {
		return nil, err
	}
	out := make([]Source, len(c.Sources))
	for i := range c.Sources {
		out[i] = all[key(c, &c.Sources[i])]
	}
	return out, nil
}

// Save adds figures to the file of a configuration's index directory.
func Save(c *config.Config, found []Source) error {
	all, err := readAll(c)
	if err != nil {
		return err
	}
	for _, f := range found {
		if s, ok := c.Source(f.Source); ok {
			all[key(c, s)] = f
		}
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return fmt.Errorf("encode the profile of sources: %w", err)
	}
	path := filepath.Join(c.IndexPath(), file)
	if err := os.WriteFile(path+".tmp", append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the profile of sources: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write the profile of sources: %w", err)
	}
	return nil
}

func readAll(c *config.Config) (map[string]Source, error) {
	path, all := filepath.Join(c.IndexPath(), file), map[string]Source{}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, nil
	case err != nil:
		return nil, fmt.Errorf("read the profile of sources: %w", err)
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read the profile of sources in %s: %w: remove the file, and run `millrace index "+
			"--profile` again", path, err)
	}
	return all, nil
}

package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
)

// Load reads and validates the mixture file at path. Relative paths in it are relative to the file's directory. The
// path "-" is standard input; then relative paths are relative to the working directory. An error wraps
// millrace.ErrInvalid; mistakes in the file are [tree.Errors].
func Load(path string) (*Config, error) {
	if path == "-" {
		return load("standard input", os.Stdin, ".")
	}
	f, err := OpenFile(path)
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read mixture file: %w", err)
	}
	defer f.Close()
	return load(path, f, filepath.Dir(path))
}

// OpenFile opens a file that the command line names. The error of a path without a file has the cure, and is
// millrace.ErrInvalid. The caller closes the file.
func OpenFile(path string) (*os.File, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s: no such file: correct the path", path)
	case err == nil && st.IsDir():
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s is a directory: name a file", path)
	}
	return os.Open(path)
}

// LoadStream is Load for one stream of a run: millrace.Train, or a further one.
func LoadStream(path, stream string) (*Config, error) {
	c, err := Load(path)
	if err != nil {
		return nil, err
	}
	return c.Stream(stream)
}

// load reads and validates a mixture file. Name is for messages.
func load(name string, f io.Reader, directory string) (*Config, error) {
	base, err := filepath.Abs(directory)
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read mixture file: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(f, tree.MaxFile+1))
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read mixture file: %w", err)
	}
	return Parse(name, content, base)
}

// Parse validates the content of a mixture file. Name is for messages. Relative paths are relative to base, an absolute
// directory. If a pattern does not show its format, Parse looks at the files in base; with an empty base it does not.
// An error is [tree.Errors].
func Parse(name string, content []byte, base string) (*Config, error) {
	doc, errs := tree.Read(name, content)
	if len(errs) > 0 {
		return nil, errs.Sorted()
	}
	c, errs := decodeConfig(name, doc, base)
	if c.Ranks != 0 {
		errs = append(errs, c.ErrorAt(StreamKey, "`ranks` is a key of the streams below `streams`",
			"give the number of ranks of the run as --ranks").(*tree.Error))
	}
	if errs = append(errs, c.parseStreams(errs)...); len(errs) > 0 {
		return nil, errs.Sorted()
	}
	return c, nil
}

// MarshalResolved returns the configuration as JSON for the processes of one run. It has every default filled in and an
// absolute Base, so every process has the same settings. It has none of the further streams: each has its own JSON. It
// belongs to one version of the binary.
func (c *Config) MarshalResolved() ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write resolved configuration: %w", err)
	}
	return b, nil
}

// Digest returns a digest of the parsed mixture file with all streams. Two hosts with equal digests plan equal runs,
// even if the file is in different directories.
func (c *Config) Digest() (string, error) {
	hash := sha256.New()
	for name, stream := range c.All() {
		placed := *stream
		placed.File, placed.Base = "", ""
		text, err := placed.MarshalResolved()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s\n", name, len(text), text)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// UnmarshalResolved reads the JSON of MarshalResolved. The result has no places in a file: its errors name the file
// alone.
func UnmarshalResolved(b []byte) (*Config, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	c := new(Config)
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("read resolved configuration: %w", err)
	}
	return c, nil
}

// LoadMilestones reads a schedule from a file: a list as under mixture.schedule, or that list under the key `schedule`.
// The first entry may begin anywhere and be a ramp. LoadMilestones does not compare the weights with the sources of a
// run. An error wraps millrace.ErrInvalid.
func LoadMilestones(path string) ([]Milestone, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read schedule: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, tree.MaxFile+1))
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read schedule: %w", err)
	}
	doc, errs := tree.Read(path, content)
	if len(errs) > 0 {
		return nil, errs.Sorted()
	}
	d := decode.Decoder{Document: doc, Hints: hints()}
	var file struct {
		Schedule []Milestone `yaml:"schedule" jsonschema:"required"`
	}
	if doc.Root.Kind == tree.Sequence {
		d.Places["schedule"] = tree.Entry{Key: doc.Root, Value: doc.Root}
		d.Decode("schedule", doc.Root, reflect.ValueOf(&file.Schedule).Elem(), decode.Rules{})
	} else {
		d.Decode("", doc.Root, reflect.ValueOf(&file).Elem(), decode.Rules{})
	}
	v := validator{Decoder: &d, c: &Config{}}
	for i := range file.Schedule {
		path := fmt.Sprintf("schedule[%d]", i)
		v.checkMilestone(path, &file.Schedule[i], false)
		if k := &file.Schedule[i]; v.Sound(path) && (k.Weights.Derived != nil || len(k.Weights.Given) == 0) {
			v.wrong(
				path+".weights", "a running run needs a weight for each source",
				"write `weights: {` with a number for each source; `millrace mix show DIR` prints those in force",
			)
		}
	}
	if len(d.Errs) == 0 {
		v.checkOrder("schedule", file.Schedule)
	}
	if len(d.Errs) == 0 && len(file.Schedule) == 0 {
		v.wrong("schedule", "the schedule is empty", "write at least one entry")
	}
	if len(d.Errs) > 0 {
		return nil, d.Errs.Sorted()
	}
	return file.Schedule, nil
}

// check runs every check. Each looks only at keys without a mistake.
func (v *validator) check() {
	v.checkSizes()
	v.checkAxes()
	v.checkTokenizer()
	v.checkCost()
	v.checkSpread()
	v.checkStop()
	v.checkLimits()
	v.checkMixture()
	v.checkAdaptive()
	v.checkSources()
}

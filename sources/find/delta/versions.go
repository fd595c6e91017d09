package delta

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"millrace"
)

// versions are the files of a log that lead to one version.
type versions struct {
	version    uint64
	checkpoint []string // its parts; none: the commits begin at version 0
	commits    []string // in order
}

var (
	commitName     = regexp.MustCompile(`^(\d{20})\.json$`)
	checkpointName = regexp.MustCompile(`^(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet$`)
	otherName      = regexp.MustCompile(`^\d{20}\.checkpoint\.[0-9a-f-]{36}\.(?:json|parquet)$`)
)

// mostParts bounds the parts of a checkpoint.
const mostParts = 1 << 20

// checkpointID is a checkpoint: a version may have one in one file, and others in several.
type checkpointID struct {
	version uint64
	of      int // parts
}

// checkpoint has the parts of a checkpoint by their places, empty where one is missing.
type checkpoint []string

func (c checkpoint) isWhole() bool { return !slices.Contains(c, "") }

// choose returns the files that lead to a version, the newest one if it is nil. The list of the log decides it: the
// file that names the last checkpoint is a hint, which may be old.
func choose(names []string, wanted *uint64) (versions, error) {
	commits, checkpoints := map[uint64]string{}, map[checkpointID]checkpoint{}
	newest, other := uint64(0), ""
	for _, name := range names {
		if m := commitName.FindStringSubmatch(name); m != nil {
			n, err := strconv.ParseUint(m[1], 10, 63)
			if err != nil {
				return versions{}, millrace.Errorf(millrace.ErrInvalid, "the number of %s is too large", name)
			}
			commits[n], newest = name, max(newest, n)
		}
		if otherName.MatchString(name) {
			other = name
		}
		if n, ok := addCheckpoint(checkpoints, name); ok {
			newest = max(newest, n)
		}
	}
	if len(commits) == 0 && len(checkpoints) == 0 {
		return versions{}, millrace.Errorf(millrace.ErrDamaged, "it has no commit: restore it")
	}
	out := versions{version: newest}
	if wanted != nil {
		if out.version = *wanted; out.version > newest {
			return versions{}, millrace.Errorf(millrace.ErrInvalid, "it has no version %d: its newest is %d: correct "+
				"`version`, or leave it out", *wanted, newest)
		}
	}
	from, best := uint64(0), checkpointID{of: mostParts + 1}
	for id, c := range checkpoints {
		isBetter := id.version > best.version || id.version == best.version && id.of < best.of
		if c.isWhole() && id.version <= out.version && isBetter {
			best, from, out.checkpoint = id, id.version+1, c
		}
	}
	for n := from; n <= out.version; n++ {
		name, ok := commits[n]
		if !ok {
			return versions{}, gap(n, out.version, other)
		}
		out.commits = append(out.commits, name)
	}
	return out, nil
}

// addCheckpoint notes a part of a checkpoint.
func addCheckpoint(all map[checkpointID]checkpoint, name string) (version uint64, ok bool) {
	m := checkpointName.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 63)
	if err != nil {
		return 0, false
	}
	part, of := 1, 1
	if m[2] != "" {
		part, _ = strconv.Atoi(m[2]) // ten digits
		of, _ = strconv.Atoi(m[3])
	}
	if part < 1 || part > of || of > mostParts {
		return 0, false
	}
	id := checkpointID{n, of}
	if all[id] == nil {
		all[id] = make(checkpoint, of)
	}
	if old := all[id][part-1]; old == "" || len(name) < len(old) { // one file before one part of one
		all[id][part-1] = name
	}
	return n, true
}

// gap returns the error of a commit that is missing on the way to a version. other is a checkpoint of a kind that is
// not read, if there is one.
func gap(missing, version uint64, other string) error {
	text := fmt.Sprintf("version %d needs the commit %020d.json, which is missing, and no whole checkpoint from then "+
		"on stands in for it", version, missing)
	if other != "" {
		return millrace.Errorf(millrace.ErrInvalid, "%s; %s has a name of version 2, and such checkpoints are not read"+
			": write a classic one, as with `delta.checkpointPolicy = classic` and a commit", text, other)
	}
	return millrace.Errorf(millrace.ErrInvalid, "%s: restore the log, or name another `version`", text)
}

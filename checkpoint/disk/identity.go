package disk

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"regexp"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The file ID has the random name of this one copy of a journal. It is made with the store and never changes. A copy of
// the store on another host has its own. A folder that is copied by other means must not keep it.
const (
	identityName  = "ID"
	identityDraft = "ID.new"
	maxIdentity   = 64 // bytes that are read
)

var identityForm = regexp.MustCompile(`^[A-Z2-7]{26}$`) // as rand.Text

// Identity returns the name in a store's folder, "" if the folder has no valid one.
func (d *Disk) Identity(dir string) (string, error) {
	f, err := d.fs.Open(d.fs.PathJoin(dir, identityName))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxIdentity))
	if err = errors.Join(err, f.Close()); err != nil || !identityForm.Match(b) {
		return "", err
	}
	return string(b), nil
}

// MakeIdentity is Identity, and gives a name to a folder that has none. The name is durable when it returns.
func (d *Disk) MakeIdentity(dir string) (string, error) {
	id, err := d.Identity(dir)
	if err != nil || id != "" {
		return id, err
	}
	id = rand.Text()
	draft := d.fs.PathJoin(dir, identityDraft)
	f, err := d.fs.Create(draft, vfs.WriteCategoryUnspecified)
	if err != nil {
		return "", err
	}
	_, err = f.Write([]byte(id))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", err
	}
	if err := d.fs.Rename(draft, d.fs.PathJoin(dir, identityName)); err != nil {
		return "", err
	}
	return id, syncDir(d.fs, dir)
}

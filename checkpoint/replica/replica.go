// Package replica writes a copy of the store of another host. A copy that is closed is a store like any other.
package replica

import (
	"errors"
	"fmt"

	"millrace/checkpoint"
)

// Replica is a copy that is being written: first the parts of an image of the other store, then its batches. It belongs
// to one goroutine.
type Replica struct {
	cfg   checkpoint.Config
	store *checkpoint.Store // open, unless Complete failed
}

// Begin begins a copy beside the store in cfg.Dir, which stays as it is until Complete. The caller closes the replica.
func Begin(cfg checkpoint.Config) (*Replica, error) {
	cfg = cfg.Located()
	r := &Replica{cfg: cfg}
	copied, err := cfg.Disk.BeginCopy(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("begin a copy of the journal for %s: %w", cfg.Dir, err)
	}
	cfg.Dir = copied
	if r.store, err = checkpoint.Open(cfg); err != nil {
		return nil, err
	}
	return r, nil
}

// ID returns the name of this copy of the journal.
func (r *Replica) ID() string { return r.store.ID() }

// Last returns the index of the newest record.
func (r *Replica) Last() uint64 {
	_, last := r.store.Bounds()
	return last
}

// Absorb makes the next part or batch durable. It takes the bytes.
func (r *Replica) Absorb(batch []byte) error { return r.store.Absorb(batch) }

// Complete puts the copy in the place of the store in Config.Dir. It is called once, after the last part of the image.
// A power cut leaves the one or the other.
func (r *Replica) Complete() error {
	if err := r.store.Close(); err != nil {
		return err
	}
	lock, err := checkpoint.Lock(r.cfg)
	if err != nil {
		return fmt.Errorf("replace the journal %s by a copy: %w", r.cfg.Dir, err)
	}
	if err := errors.Join(r.cfg.Disk.Replace(r.cfg.Dir), lock.Close()); err != nil {
		return fmt.Errorf("replace the journal %s by a copy: %w", r.cfg.Dir, err)
	}
	store, err := checkpoint.Open(r.cfg)
	if err == nil {
		r.store = store
	}
	return err
}

// Close closes the copy. One that is not complete stays without effect, and the next Begin removes it.
func (r *Replica) Close() error {
	if err := r.store.Close(); !errors.Is(err, checkpoint.ErrClosed) {
		return err
	}
	return nil
}

// ID returns the name of the copy in cfg.Dir, which is not open. It is "" if there is none.
func ID(cfg checkpoint.Config) (string, error) {
	cfg = cfg.Located()
	if err := cfg.Disk.Recover(cfg.Dir); err != nil {
		return "", fmt.Errorf("find the journal %s: %w", cfg.Dir, err)
	}
	id, err := cfg.Disk.Identity(cfg.Dir)
	if err != nil {
		return "", fmt.Errorf("read the name of the journal %s: %w", cfg.Dir, err)
	}
	return id, nil
}

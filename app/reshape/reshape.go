// Package reshape carries requests for other ranks from `millrace topology` to the `millrace up` of a run directory,
// and the answers back. Both are files of the runtime directory. Only the user of `up` reaches it. One command asks
// at a time: it holds a lock, which ends with its process.
package reshape

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"millrace/app/supervisor"
	"millrace/internal/limits"
	"millrace/internal/seam"
)

// Request names the ranks that a host is to serve next, and the topology of the run.
type Request struct {
	ID    string `json:"id"`
	First int    `json:"first"` // of the host's ranks
	Ranks int    `json:"ranks"` // of the host
	World int    `json:"world"` // ranks of the run
	TP    int    `json:"tp"`    // 0 here, in CP and in PP: as in the mixture file
	CP    int    `json:"cp"`
	PP    int    `json:"pp"`
	// Patience is how long trainers may take to leave.
	Patience time.Duration `json:"patience"`
}

type answer struct {
	ID      string `json:"id"`
	Refused string `json:"refused,omitempty"`
}

const (
	requestName = "topology.json"
	answerName  = "topology-answer.json"
	lockName    = "topology.lock"
	askEvery    = 100 * time.Millisecond // of a command that waits for its answer
	serveEvery  = 500 * time.Millisecond // of `up`, as long as it lives
)

// ErrPending: another command asks for other ranks now.
var ErrPending = errors.New("another `millrace topology` of this run directory has not ended")

// Ask sends a request to the `up` of a run directory, and returns when it is carried out or refused. If ctx ends
// before, the request is withdrawn; a change that has begun goes on. serves returns an error if no `up` serves the
// directory.
func Ask(ctx context.Context, clock seam.Clock, runDir string, r Request, serves func() error) error {
	r.ID = rand.Text()
	lock, err := lock(runDir)
	if err != nil {
		return fmt.Errorf("ask `millrace up` for other ranks: %w", err)
	}
	defer lock.Close()
	request := filepath.Join(supervisor.RuntimeDir(runDir), requestName)
	if err := write(request, r); err != nil {
		return fmt.Errorf("ask `millrace up` for other ranks: %w", err)
	}
	defer os.Remove(request)
	for {
		var a answer
		if read(filepath.Join(supervisor.RuntimeDir(runDir), answerName), &a) == nil && a.ID == r.ID {
			if a.Refused != "" {
				return errors.New(a.Refused)
			}
			return nil
		}
		if err := serves(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("`millrace up` on %s has not answered: %w", runDir, ctx.Err())
		case <-clock.After(askEvery):
		}
	}
}

// lock returns a file whose lock ends when it is closed. The error is ErrPending if another process has it.
func lock(runDir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(supervisor.RuntimeDir(runDir), lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrPending
		} else {
			err = limits.Lock(f.Name(), err, "start the run with a --run-dir on a local disk")
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// IsWanted reports whether the command that sent a request waits for it still.
func IsWanted(runDir string, r Request) bool {
	var now Request
	return read(filepath.Join(supervisor.RuntimeDir(runDir), requestName), &now) == nil && now.ID == r.ID
}

// Serve carries out requests until ctx ends, one after the other. An error of apply is the answer.
func Serve(ctx context.Context, clock seam.Clock, runDir string, apply func(Request) error) {
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-clock.After(serveEvery):
		}
		var r Request
		if read(filepath.Join(supervisor.RuntimeDir(runDir), requestName), &r) != nil || r.ID == last {
			continue
		}
		last = r.ID
		a := answer{ID: r.ID}
		if err := apply(r); err != nil {
			a.Refused = err.Error()
		}
		// Without the answer, the asker gives up after a while.
		_ = write(filepath.Join(supervisor.RuntimeDir(runDir), answerName), a)
	}
}

// write replaces a file as a whole.
func write(path string, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	next := path + "." + rand.Text()
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func read(path string, value any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, value)
}

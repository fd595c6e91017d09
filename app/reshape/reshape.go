// Package reshape carries requests for other ranks from `millrace topology` to the `millrace up` of a run directory,
// and the answers back. Both are files of the runtime directory. Only the user of `up` reaches it. One command asks
// at a time: it holds a lock, which ends with its process.
//
//	change.go   Change: the side of the command
//	reshape.go  the request, its files, and Serve: the side of `up`
package reshape

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"millrace/app/supervisor"
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
	serveEvery  = 500 * time.Millisecond // of `up`, as long as it lives
)

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

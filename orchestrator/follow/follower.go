package follow

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/checkpoint"
	"millrace/checkpoint/replica"
	"millrace/internal/seam"
	"millrace/orchestrator/lease"
	"millrace/proto"
)

// Dial connects to the orchestrator that leads now. The caller closes the connection.
type Dial func(ctx context.Context) (*grpc.ClientConn, error)

// Config describes a candidate and the place of its journal.
type Config struct {
	Journal  checkpoint.Config
	Version  *proto.Version
	Host     string       // for people
	Identity string       // of this process: a random number
	Clock    seam.Clock   // nil: the system's
	Log      *slog.Logger // nil: none
	// Dial connects to the leader of the stream; nil: no other host has the journal, so there is no leader to follow.
	Dial Dial
}

// retryDelay is the pause before a follower connects again.
const retryDelay = 200 * time.Millisecond

// Follower is the journal of a process that is not elected. While it waits, it keeps a copy of the leader's journal.
type Follower struct {
	cfg     Config
	folder  sync.Mutex // held while the journal is replaced or its name is read
	mu      sync.Mutex
	idle    sync.Cond          // signalled when a session ends
	stands  bool               // no session begins
	session context.CancelFunc // of the session now; nil: there is none
	may     chan struct{}      // closed when a session may begin; replaced by Stand
	follows bool               // the session has the leader's journal, or waits for a place; of the goroutine of run
}

// New returns the journal of a candidate. It starts nothing.
func New(cfg Config) *Follower {
	if cfg.Clock == nil {
		cfg.Clock = seam.System{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	f := &Follower{cfg: cfg, may: make(chan struct{})}
	f.idle.L = &f.mu
	close(f.may)
	return f
}

// run follows the leader of the moment until ctx ends. It connects again after every error, and to the next leader
// when there is one.
func (f *Follower) run(ctx context.Context) {
	trouble := trouble{since: f.cfg.Clock.Now()}
	for ctx.Err() == nil {
		err := f.follow(ctx)
		now := f.cfg.Clock.Now()
		if f.follows {
			f.follows, trouble.since = false, now
		}
		if err != nil && ctx.Err() == nil && trouble.isNews(err, now) {
			f.cfg.Log.Warn("the journal of the leader is not followed", "err", trouble.told)
		}
		select {
		case <-ctx.Done():
		case <-f.cfg.Clock.After(retryDelay):
		}
	}
}

// absence is how long a leader may be away before the follower reports it. Runs begin and end without one.
const absence = 30 * time.Second

// trouble decides which errors of sessions are reported.
type trouble struct {
	since time.Time // since then there is no leader to follow
	told  string    // the newest error that was reported
}

// isNews reports whether an error is to be reported; each is reported once.
func (t *trouble) isNews(err error, now time.Time) bool {
	isAway := status.Code(err) == codes.Unavailable || errors.Is(err, context.Canceled)
	if isAway && now.Sub(t.since) < absence || err.Error() == t.told {
		return false
	}
	t.told = err.Error()
	return true
}

// follow waits until a session may begin, and runs it.
func (f *Follower) follow(ctx context.Context) error {
	f.mu.Lock()
	may := f.may
	f.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil
	case <-may:
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	if f.stands {
		f.mu.Unlock()
		return nil
	}
	f.session = cancel
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.session = nil
		f.idle.Broadcast()
	}()
	err := f.followOnce(ctx)
	if ctx.Err() != nil {
		return nil // Stand ended the session
	}
	return err
}

// ID implements lease.Standing.
func (f *Follower) ID() (string, error) {
	f.folder.Lock()
	defer f.folder.Unlock()
	return replica.ID(f.cfg.Journal)
}

// Stand implements lease.Standing. It ends the session, and closes the copy.
func (f *Follower) Stand() (string, error) {
	f.mu.Lock()
	if !f.stands {
		f.stands, f.may = true, make(chan struct{})
	}
	for f.session != nil {
		f.session()
		f.idle.Wait()
	}
	f.mu.Unlock()
	return f.ID()
}

// Yield implements lease.Standing.
func (f *Follower) Yield() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stands {
		f.stands = false
		close(f.may)
	}
}

// Elect follows the leader until this process is elected by e, which has the journals of all streams. Then nothing
// follows any more, and the caller opens the journals and acquires the grant. The lease ends with ctx.
func Elect(ctx context.Context, e lease.Elector, journals ...*Follower) (*lease.Grant, error) {
	following, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, f := range journals {
		if f.cfg.Dial != nil {
			wg.Go(func() { f.run(following) })
		}
	}
	grant, err := e.Elect(ctx)
	end()
	wg.Wait()
	return grant, err
}

var _ lease.Standing = (*Follower)(nil)

package loader

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc/stats"

	"millrace/internal/arena"
)

// arenas are the arenas that one sidecar has named on its connection. They are mapped until the sidecar does not use
// them any more, or its connection ends.
type arenas struct {
	space arena.Space
	log   *slog.Logger

	mu     sync.Mutex
	open   map[string]*mapped
	isOver bool // the connection has ended
}

// mapped is one arena. The mutex of its arenas guards it.
type mapped struct {
	arena  *arena.Arena
	users  int
	isGone bool // closed after the last use
}

// use returns the tokens of an arena, for one request, or nil if there is no arena. The caller ends the use with done.
func (a *arenas) use(name string) (tokens []uint32, done func()) {
	none := func() {}
	if a == nil || a.space == nil || name == "" {
		return nil, none
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isOver {
		return nil, none
	}
	x := a.open[name]
	if x == nil {
		opened, err := a.space.Open(name)
		if err != nil {
			a.log.Debug("send tokens without shared memory", "reason", err)
			return nil, none
		}
		x = &mapped{arena: opened}
		a.open[name] = x
	}
	x.users++
	return x.arena.Tokens, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		x.users--
		a.tidy(name, x)
	}
}

// forget closes arenas as soon as no request uses them.
func (a *arenas) forget(names []string) {
	if a == nil || len(names) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		if x := a.open[name]; x != nil {
			x.isGone = true
			a.tidy(name, x)
		}
	}
}

// end forgets all arenas.
func (a *arenas) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isOver = true
	for name, x := range a.open {
		x.isGone = true
		a.tidy(name, x)
	}
}

// tidy closes an arena that is gone and has no users; mu is held.
func (a *arenas) tidy(name string, x *mapped) {
	if !x.isGone || x.users > 0 {
		return
	}
	delete(a.open, name)
	if err := x.arena.Close(); err != nil {
		a.log.Warn("close shared memory", "arena", name, "error", err)
	}
}

// arenasKey is the key of a connection's *arenas in the contexts of its requests.
type arenasKey struct{}

func arenasOf(ctx context.Context) *arenas {
	a, _ := ctx.Value(arenasKey{}).(*arenas)
	return a
}

// connections gives each connection of the server its arenas.
type connections struct {
	space arena.Space
	log   *slog.Logger
}

var _ stats.Handler = connections{}

// TagConn implements stats.Handler.
func (c connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, arenasKey{}, &arenas{space: c.space, log: c.log, open: map[string]*mapped{}})
}

// HandleConn implements stats.Handler.
func (c connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, isEnd := s.(*stats.ConnEnd); isEnd {
		arenasOf(ctx).end()
	}
}

// TagRPC implements stats.Handler.
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (connections) HandleRPC(context.Context, stats.RPCStats) {}

package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"

	"millrace"
	"millrace/internal/secure"
	"millrace/orchestrator/lease/hosts"
)

// Join registers this host with a fresh identity of its `up`, and returns the registration with the facts that the
// hosts agree on. While it waits, it prints why. The caller calls Leave.
func Join(ctx context.Context, f *File, me hosts.Host, lines io.Writer) (*hosts.Membership, error) {
	if f.Listen == "" {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s: listen is missing: write listen: \"host:port\", as the "+
			"other hosts reach this one, or --listen", f.Path)
	}
	if f.TLS == (secure.Files{}) {
		if err := secure.CheckPlain(ctx, f.Listen); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	me.Name, me.Up = f.Host(), rand.Text()
	cfg := f.Etcd()
	cfg.Frozen = waits(lines)
	return hosts.Join(ctx, cfg, me)
}

// waits returns a function that prints why a process waits, and the end of the wait when why is empty. It may be called
// from any goroutine.
func waits(w io.Writer) func(why string) {
	var mu sync.Mutex
	last := ""
	return func(why string) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case why != "":
			fmt.Fprintln(w, "warning: "+why)
		case last != "":
			fmt.Fprintln(w, "over: "+last)
		}
		last = why
	}
}

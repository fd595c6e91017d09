package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"

	"millrace"
	"millrace/orchestrator/lease/hosts"
)

// Join registers this host with a fresh identity of its `up`, and returns the registration with the facts that the
// hosts agree on. While it waits, it prints why. The caller calls Leave.
func Join(ctx context.Context, f *File, me hosts.Host, lines io.Writer) (*hosts.Membership, error) {
	if f.Listen == "" {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s: listen is missing: write listen: \"host:port\", as the "+
			"other hosts reach this one", f.Path)
	}
	me.Name, me.Up = f.Host(), rand.Text()
	cfg, told := f.Etcd(), ""
	cfg.Frozen = func(why string) {
		switch {
		case why != "":
			fmt.Fprintln(lines, "warning: "+why)
		case told != "":
			fmt.Fprintln(lines, "over: "+told)
		}
		told = why
	}
	return hosts.Join(ctx, cfg, me)
}

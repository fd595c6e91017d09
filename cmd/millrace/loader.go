package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"millrace"
	"millrace/internal/app/setup"
	"millrace/internal/app/supervisor"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/sources"
	"millrace/sources/loader"
)

func loaderCommand() *cobra.Command {
	return memberCommand(&cobra.Command{Use: loaderWord, Short: "Read sources ahead (started by up)"}, false)
}

// shadowCommand is a loader that asks to stand by for others.
func shadowCommand() *cobra.Command {
	return memberCommand(&cobra.Command{Use: shadowWord, Short: "Stand by for loaders (started by up)"}, true)
}

func memberCommand(c *cobra.Command, standby bool) *cobra.Command {
	r := &role{}
	roleFlags(c, r)
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop, err := r.start(c.Context())
		if err != nil {
			return err
		}
		defer stop()
		return r.member(ctx, standby)
	}
	return c
}

// member runs a loader or a shadow.
func (r *role) member(ctx context.Context, standby bool) error {
	encoding, err := setup.Tokenizer(r.cfg)
	if err != nil {
		return asFailure(err)
	}
	runtimeDir := supervisor.RuntimeDir(r.runDir)
	if err := removeLeftovers(runtimeDir, r.name); err != nil {
		return err
	}
	beat, err := heartbeat.Files{}.Create(heartbeat.Path(runtimeDir, r.name, os.Getpid()))
	if err != nil {
		return err
	}
	address := socket(r.runDir, fmt.Sprintf("%s-%d", r.name, os.Getpid()))
	memory := setup.LoaderMemory(r.cfg)
	memoryLimit(memory)
	ctx, leave := handingOver(ctx)
	l := loader.New(loader.Config{
		Name: r.name, Address: address, Orchestrator: socket(r.runDir, "orchestrator"), Standby: standby, Beat: beat, Leave: leave,
		Version: speaks(),
		Spec: func(name string) (sources.Spec, error) {
			src, ok := r.cfg.Source(name)
			if !ok {
				return sources.Spec{}, millrace.Errorf(millrace.ErrInvalid, "source %s is not in the mixture", name)
			}
			return setup.SourceSpec(r.cfg, src, encoding)
		},
		Memory: memory / 2, Net: seam.UnixNet{}, Clock: seam.System{}, Fail: r.fail, Events: r.events, Log: r.log, Ready: r.ready, Term: r.term,
		Role: func(standby bool) {
			if standby {
				title(shadowWord)
			} else {
				title(loaderWord)
			}
		},
	})
	err = l.Run(ctx)
	// Both names are this life's alone: no successor's are removed.
	if e := os.Remove(address); !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return asFailure(errors.Join(err, beat.Close()))
}

// handingOver ends with ctx, but where the process was asked to stop: then leave is closed instead, and the role ends by itself once
// what it serves is another's.
func handingOver(ctx context.Context) (_ context.Context, leave <-chan struct{}) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	asked := make(chan struct{})
	context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, supervisor.ErrStopped) {
			close(asked)
		} else {
			cancel(cause)
		}
	})
	return inner, asked
}

// removeLeftovers removes what dead processes of a slot left in the runtime directory.
func removeLeftovers(dir, name string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), name+"-")
		pid, err := strconv.Atoi(strings.TrimSuffix(rest, filepath.Ext(rest)))
		if !ours || err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove leftovers: %w", err)
		}
	}
	return nil
}

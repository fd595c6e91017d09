package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar/link/watch"
)

const (
	rows      = 4                                    // of a call
	rowTokens = 1024                                 // of a row, and one more
	stepBytes = loaders * rows * (rowTokens + 1) * 2 // all ids are below 65,536
)

// client is a sidecar without trainers: a connection to each loader.
type client [loaders]*grpc.ClientConn

// dial opens the connections with the options of sidecar/link, except for the buffer of 512 KiB: thousands of clients
// share this process.
func dial(addresses []string) (c client, err error) {
	for k, address := range addresses {
		if c[k], err = dialOne(address, secure.Loader); err != nil {
			return c, err
		}
	}
	return c, nil
}

func dialOne(address string, role secure.Role) (*grpc.ClientConn, error) {
	var none *secure.Credentials
	return grpc.NewClient(secure.Target, append(none.Client(seam.SystemNet{}, address, role),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewPayload())), grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(16<<20), grpc.WithInitialConnWindowSize(32<<20))...)
}

// tally is the count of all clients.
type tally struct {
	watched map[*grpc.ClientConn]attended // by the clients' watchers; nil: they have none
	replies atomic.Int64
	mu      sync.Mutex
	fetches []time.Duration // from the call to its last reply
	steps   []time.Duration // from the time at which the step was due to its last row
}

// fetch asks one loader for random rows.
func (t *tally) fetch(ctx context.Context, conn *grpc.ClientConn) error {
	part := &proto.FetchPart{Source: source, Term: term}
	for range rows {
		part.Ordinal = append(part.Ordinal, rand.Uint64N(documents))
		part.Offset, part.Length = append(part.Offset, 0), append(part.Length, rowTokens)
	}
	var life *heartbeat.Wire
	if a, ok := t.watched[conn]; ok {
		x := a.watcher.Attend(a.process)
		defer a.watcher.Detach(x)
		life = x.Life()
	}
	began := time.Now()
	stream, err := proto.NewLoaderClient(conn).Fetch(ctx, &proto.FetchRequest{
		Fence: &proto.Fence{Stream: string(millrace.Train)}, Part: []*proto.FetchPart{part}}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for bytes := 0; ; {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if bytes != stepBytes/loaders {
				return fmt.Errorf("%d bytes came for a call, want %d", bytes, stepBytes/loaders)
			}
			break
		}
		if err != nil {
			return err
		}
		life.Live()
		if len(r.Failed) > 0 {
			return fmt.Errorf("a part failed: %v", r.Failed)
		}
		bytes += len(r.Tokens)
		t.replies.Add(1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fetches = append(t.fetches, time.Since(began))
	return nil
}

// step asks all loaders at once.
func (t *tally) step(ctx context.Context, c client, due time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, conn := range c {
		group.Go(func() error { return t.fetch(ctx, conn) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, time.Since(due))
	return nil
}

// attended is a loader as its client's watcher knows it.
type attended struct {
	watcher *watch.Watcher
	process watch.Process
}

// watchAll gives each client the watcher of a sidecar, in the group until ctx ends.
func watchAll(ctx context.Context, all []client, group *errgroup.Group) map[*grpc.ClientConn]attended {
	out := map[*grpc.ClientConn]attended{}
	for _, c := range all {
		w := watch.New(watch.Config{Clock: seam.System{}, Log: slog.New(slog.DiscardHandler),
			Dial: func(name string) (*grpc.ClientConn, error) { k, err := strconv.Atoi(name); return c[k], err }})
		for k, conn := range c {
			out[conn] = attended{w, watch.Process{Name: "loader", Address: strconv.Itoa(k), IsRemote: true}}
		}
		group.Go(func() error { w.Patrol(ctx); return nil })
	}
	return out
}

// measure prints a row of the table for a number of clients.
func measure(n int, beats bool, rate float64, span time.Duration) error {
	served, addresses, err := start()
	if err != nil {
		return err
	}
	defer served.stop()
	before := resident(served.cmd.Process.Pid)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all, group := make([]client, n), errgroup.Group{}
	warm := tally{}
	group.SetLimit(32)
	for k := range all {
		if all[k], err = dial(addresses); err != nil {
			return err
		}
		group.Go(func() error { return warm.step(ctx, all[k], time.Now()) })
	}
	defer func() {
		for _, c := range all {
			for _, conn := range c {
				conn.Close()
			}
		}
	}()
	if err := group.Wait(); err != nil {
		return fmt.Errorf("the first step of a client: %w", err)
	}
	listeners, lctx := errgroup.WithContext(ctx)
	var watched map[*grpc.ClientConn]attended
	if beats {
		watched = watchAll(lctx, all, listeners)
	}
	time.Sleep(time.Second)
	perConnection := (resident(served.cmd.Process.Pid) - before) / float64(n*loaders)
	own, theirs := cpu(os.Getpid()), cpu(served.cmd.Process.Pid)
	t := &tally{watched: watched}
	if err := arrivals(stepBytes/(rate*1e6), span, func(due time.Time) error {
		return t.step(ctx, all[rand.IntN(len(all))], due)
	}); err != nil {
		return err
	}
	steps := float64(len(t.steps))
	own, theirs = cpu(os.Getpid())-own, cpu(served.cmd.Process.Pid)-theirs
	fmt.Printf("| %d | %t | %d | %d | %.1f | %.0f | %.0f | %.0f | %s | %s | %s | %s | %.0f |\n", n, beats, n, loaders,
		float64(t.replies.Load())/steps, steps, own/steps*1e6, theirs/steps*1e6, at(t.fetches, 0.5),
		at(t.fetches, 0.99), at(t.steps, 0.5), at(t.steps, 0.99), perConnection)
	cancel()
	return listeners.Wait()
}

// arrivals starts steps at random times for a span: every mean seconds on average, whether earlier ones have ended or
// not. It returns when all have ended.
func arrivals(mean float64, span time.Duration, step func(due time.Time) error) error {
	group := errgroup.Group{}
	next := func(due time.Time) time.Time {
		return due.Add(time.Duration(rand.ExpFloat64() * mean * float64(time.Second)))
	}
	for due, end := time.Now(), time.Now().Add(span); due.Before(end); due = next(due) {
		time.Sleep(time.Until(due))
		group.Go(func() error { return step(due) })
	}
	return group.Wait()
}

// child is the process of the loaders.
type child struct {
	cmd *exec.Cmd
	in  io.Closer // nil: it was not started
	dir string
}

func (c *child) stop() {
	if c.in != nil {
		c.in.Close()
		_ = c.cmd.Wait() // its end has no result
	}
	_ = os.RemoveAll(c.dir)
}

// start starts the loaders, with a directory for their sockets, and returns their addresses.
func start() (*child, []string, error) {
	dir, err := os.MkdirTemp("", "fanout-")
	if err != nil {
		return nil, nil, err
	}
	served := &child{cmd: exec.Command(os.Args[0], "-serve", dir), dir: dir}
	addresses, err := served.start()
	if err != nil {
		served.stop()
	}
	return served, addresses, err
}

func (c *child) start() (addresses []string, err error) {
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(out); len(addresses) < loaders && lines.Scan(); {
		addresses = append(addresses, lines.Text())
	}
	if len(addresses) < loaders {
		return nil, errors.New("the loaders did not start")
	}
	return addresses, nil
}

func at(of []time.Duration, p float64) string {
	if len(of) == 0 {
		return "-"
	}
	slices.Sort(of)
	return fmt.Sprintf("%.1f", float64(of[min(len(of)-1, int(p*float64(len(of))))].Microseconds())/1e3)
}

// cpu returns the processor seconds of a process.
func cpu(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // both processes live
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// resident returns the resident memory of a process in KiB.
func resident(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it lives
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(after)
	kib, _ := strconv.ParseFloat(fields[0], 64)
	return kib
}

// Command server serves a synthetic run through the real sidecar, for the Python client's tests and the hand-over
// benchmark. It prints `ready`, and then every event of the sidecar as a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"millrace"
	"millrace/sidecar"
	"millrace/sidecar/sidecartest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var c sidecartest.Config
	dir := flag.String("dir", ".", "directory of the sockets")
	frames := flag.Uint("frames", 0, "frames of a ring; 0: by size")
	quiet := flag.Bool("quiet", false, "print no events")
	layout := flag.String("layout", "packed", "packed | varlen")
	fail := flag.Duration("fail-after", 0, "fail the run after this time; 0: never")
	flag.IntVar(&c.World, "ranks", 1, "trainer ranks")
	flag.IntVar(&c.Elsewhere, "elsewhere", 0, "of these, the last ones, on other hosts")
	flag.BoolVar(&c.Untrained, "untrained", false, "some tokens may be left out of the loss")
	flag.IntVar(&c.TP, "tp", 1, "tensor-parallel ranks")
	flag.IntVar(&c.CP, "cp", 1, "context-parallel ranks")
	flag.IntVar(&c.PP, "pp", 1, "pipeline stages")
	flag.IntVar(&c.Pad, "pad", 1, "multiple to which segments are padded")
	flag.BoolVar(&c.Broadcast.TP, "broadcast-tp", false, "the trainer passes tensors on along tp")
	flag.BoolVar(&c.Broadcast.PP, "broadcast-pp", false, "the trainer passes tensors on along pp")
	flag.BoolVar(&c.Broadcast.Positions, "positions", false, "middle pipeline stages get no tokens")
	flag.IntVar(&c.Steps, "steps", 0, "steps of the run; 0: endless")
	flag.IntVar(&c.Microbatches, "microbatches", 2, "microbatches of a rank and step")
	flag.IntVar(&c.Rows, "rows", 2, "rows of a microbatch")
	flag.IntVar(&c.Length, "length", 64, "tokens of a row")
	flag.IntVar(&c.Longer, "longer", 0, "step from which rows are twice as long, and each is a microbatch")
	flag.IntVar(&c.StateBytes, "state-bytes", 0, "size of the state, in bytes")
	flag.BoolVar(&c.History, "history", false, "the run has been started before")
	flag.BoolVar(&c.SameStep, "same-step", false, "plan every step like the first")
	flag.IntVar(&c.FailAt, "fail-at", 0, "step at which the run fails")
	flag.StringVar(&c.FailReason, "fail-reason", "source web: part-0.jsonl.zst is truncated", "reason of the failure")
	flag.IntVar(&c.Crumbs, "crumbs", 0, "step from which segments are one token long")
	flag.DurationVar(&c.PlanDelay, "plan-delay", 0, "time that each plan takes")
	flag.StringVar(&c.Alert, "alert", "", "text of an open alert")
	flag.Parse()
	c.Layout = millrace.Layout(*layout)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if *fail > 0 {
		defer time.AfterFunc(*fail, func() { cancel(&sidecar.RunError{Reason: c.FailReason}) }).Stop()
	}
	synthetic := sidecartest.New(c)
	config := sidecar.Config{
		Dir: *dir, Upstream: synthetic, Fetcher: synthetic, Frames: uint32(*frames),
		Ready: func() { fmt.Println("ready") },
	}
	for r := range c.World - c.Elsewhere {
		config.Ranks = append(config.Ranks, millrace.Rank(r))
	}
	if !*quiet {
		config.Observe = printer()
	}
	s, err := sidecar.New(config)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func printer() func(sidecar.Event) {
	var mu sync.Mutex
	enc := json.NewEncoder(os.Stdout)
	return func(e sidecar.Event) {
		mu.Lock()
		defer mu.Unlock()
		_ = enc.Encode(e)
	}
}

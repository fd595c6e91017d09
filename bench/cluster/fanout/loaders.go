package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/proto"
	"millrace/sources"
	"millrace/sources/format/lengths"
	"millrace/sources/read/loader"
)

const (
	loaders   = 4
	documents = 1 << 14 // that each loader offers
	tokens    = 1025    // of each document: a row of 1,024 has one more token
	term      = 2       // of the only stripe
)

// director is an orchestrator that gives each loader one source and all of its documents.
type director struct {
	proto.UnimplementedOrchestratorServer
	ready chan string // the address of a loader that offered everything
}

// Load implements proto.OrchestratorServer.
func (d *director) Load(stream proto.Orchestrator_LoadServer) error {
	fence := &proto.Fence{Stream: string(millrace.Train), Term: 1}
	remote, offered := "", 0
	for {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		var orders []*proto.LoaderOrder
		switch {
		case e.GetHello() != nil:
			remote = e.GetHello().Remote
			orders = []*proto.LoaderOrder{
				{Order: &proto.LoaderOrder_Open{Open: &proto.OpenSource{Source: source}}}}
		case e.GetManifest() != nil:
			orders = []*proto.LoaderOrder{
				{Order: &proto.LoaderOrder_Read{Read: &proto.ReadFrom{Source: source, Stripes: 1, Term: term}}},
				{Order: &proto.LoaderOrder_Reading{Reading: &proto.Reading{Source: []string{source},
					Until: []uint64{documents}, Below: []uint64{0}, SeekPoint: []*proto.SeekPoint{{}}}}}}
		case e.GetFatal() != nil:
			return fmt.Errorf("a loader failed: %s", e.GetFatal().Reason)
		}
		for _, o := range orders {
			o.Fence = fence
			if err := stream.Send(o); err != nil {
				return err
			}
		}
		before := offered
		for _, o := range e.GetOffered().GetStripes() {
			offered += len(o.Ordinal)
		}
		if before < documents && offered >= documents {
			d.ready <- remote
		}
	}
}

const source = "s"

// serveLoaders runs the loaders until the input ends. It prints their addresses.
func serveLoaders(dir string) error {
	data := filepath.Join(dir, "lengths.csv")
	text := fmt.Sprintf("tokens,count\n%d,%d\n", tokens, 2*documents)
	if err := os.WriteFile(data, []byte(text), 0o600); err != nil {
		return err
	}
	address := filepath.Join(dir, "orchestrator.sock")
	listener, err := seam.SystemNet{}.Listen(address)
	if err != nil {
		return err
	}
	d := &director{ready: make(chan string)}
	server := grpc.NewServer()
	proto.RegisterOrchestratorServer(server, d)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(listener) })
	for k := range loaders {
		beat, err := heartbeat.Files{}.Create(filepath.Join(dir, fmt.Sprintf("loader-%d-%d.beat", k, os.Getpid())))
		if err != nil {
			return err
		}
		l := loader.New(loader.Config{
			Name: fmt.Sprintf("loader-%d", k), Address: filepath.Join(dir, fmt.Sprintf("loader-%d.sock", k)),
			Remote: "127.0.0.1:0", Orchestrator: address, Memory: 64 << 20, Parallel: 2, Beat: beat,
			Spec: func(string) (sources.Spec, error) {
				return sources.Spec{Name: source, Format: lengths.Format{}, Base: dir,
					Patterns: []string{"lengths.csv"}, Shuffle: millrace.Global, Epochs: 1}, nil
			},
			Net: seam.SystemNet{}, Clock: seam.System{}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
			Ready: func() {}, Term: func(millrace.Term) {},
		})
		group.Go(func() error { return l.Run(ctx) })
	}
	for range loaders {
		select {
		case remote := <-d.ready:
			fmt.Println(remote)
		case <-ctx.Done():
			return group.Wait()
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	server.Stop()
	return err
}

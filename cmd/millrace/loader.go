package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/internal/seam"
	"millrace/internal/setup"
	"millrace/sources"
	"millrace/sources/loader"
)

func loaderCommand() *cobra.Command {
	return readerCommand("loader", "Read sources ahead (started by up)")
}

// shadowCommand is the loader's program: what a process of it does, the orchestrator decides.
func shadowCommand() *cobra.Command {
	return readerCommand("shadow", "Stand by for loaders (started by up)")
}

func readerCommand(use, short string) *cobra.Command {
	r := &role{}
	c := &cobra.Command{Use: use, Short: short}
	roleFlags(c, r)
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop, err := r.start(c.Context())
		if err != nil {
			return err
		}
		defer stop()
		encoding, err := setup.Tokenizer(r.cfg)
		if err != nil {
			return asFailure(err)
		}
		memory := setup.LoaderMemory(r.cfg)
		memoryLimit(memory)
		l := loader.New(loader.Config{
			Name: r.name, Address: socket(r.runDir, r.name), Orchestrator: socket(r.runDir, "orchestrator"), Version: speaks(),
			Spec: func(name string) (sources.Spec, error) {
				src, ok := r.cfg.Source(name)
				if !ok {
					return sources.Spec{}, fmt.Errorf("source %s is not in the mixture: %w", name, millrace.ErrInvalid)
				}
				return setup.SourceSpec(r.cfg, src, encoding)
			},
			Memory: memory / 2, Net: seam.UnixNet{}, Clock: seam.System{}, Fail: r.fail, Events: r.events, Log: r.log, Ready: r.ready, Term: r.term,
		})
		return asFailure(l.Run(ctx))
	}
	return c
}

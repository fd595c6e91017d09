// Command millrace is the only binary: every role of a run and every tool. A file of this package reads the flags of a
// command, calls one function of app, and prints its answer.
package main

import (
	"context"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/cmd/millrace/certs"
)

func main() {
	raiseProcessors(os.Getenv("GOMAXPROCS"))
	os.Exit(run(os.Args[1:]))
}

// leastProcessors is the least number of threads that run Go code at the same time. With one, a goroutine that encodes
// keeps requests of other processes waiting for up to 10 ms. With two, the kernel shares a single core between them
// within less than that.
const leastProcessors = 2

// raiseProcessors applies leastProcessors, unless the user has set a number.
func raiseProcessors(set string) {
	if set == "" && runtime.GOMAXPROCS(0) < leastProcessors {
		runtime.GOMAXPROCS(leastProcessors)
	}
}

// run executes a command line and returns the exit status.
func run(args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	return exit.Report(os.Stderr, root.ExecuteContext(context.Background()))
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "One exact stream of length-balanced batches from many datasets to every trainer rank",
		Long: `Millrace feeds the training of large models. A mixture file names the sources and how they are mixed.
up serves every trainer rank of this host on a Unix socket. The same mixture file gives the same batches, also after
failures.

  millrace check mixture.yaml                             validate it, and predict the run
  millrace up mixture.yaml runs/a --ranks 8               serve the batches
  millrace status runs/a                                  see the state of the run`,
		SilenceUsage: true, SilenceErrors: true, Args: noArgs, SuggestionsMinimumDistance: 2,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }, Version: programVersion(),
	}
	root.SetVersionTemplate(versionLine())
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit.Usagef("%s: %w: see `%s --help`", c.CommandPath(), err, c.CommandPath())
	})
	root.AddGroup(&cobra.Group{ID: dataGroup, Title: "Data:"}, &cobra.Group{ID: runGroup, Title: "Run:"},
		&cobra.Group{ID: inspectGroup, Title: "Inspect:"}, &cobra.Group{ID: clusterGroup, Title: "Cluster:"})
	root.AddCommand(in(dataGroup, initCommand(), importCommand(), inspectCommand(), checkCommand(), indexCommand(),
		planCommand(), previewCommand())...)
	root.AddCommand(in(runGroup, upCommand(), mixCommand(), restartCommand(), topologyCommand(), benchCommand())...)
	root.AddCommand(in(inspectGroup, statusCommand(), topCommand(), ledgerCommand(), checkpointCommand())...)
	root.AddCommand(in(clusterGroup, certs.Command(certs.Shell{NoArgs: noArgs, Page: page}), etcdCommand())...)
	root.AddCommand(versionCommand(), roleCommand(), mailboxCommand())
	root.AddCommand(singleCommands()...)
	takeHelp(root)
	return root
}

// takeHelp gives the commands for help and completion, which are of the library, our usage errors.
func takeHelp(root *cobra.Command) {
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return noArgs(root, args)
			}
			return of.Help()
		},
	})
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	completion.Short = "Print a script that completes commands in a shell"
	completion.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	for _, c := range append(completion.Commands(), completion) {
		c.Args = noArgs
	}
}

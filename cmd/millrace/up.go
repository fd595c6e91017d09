package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/app/exit"
	"millrace/app/up"
)

func upCommand() *cobra.Command {
	u := &up.Up{Version: programVersion()}
	c := &cobra.Command{
		Use:   "up MIXTURE DIR --ranks N",
		Short: "Serve a mixture to the trainer ranks of this host",
		Long: `Serve a mixture to the N trainer ranks of this host, on DIR/rank-0.sock … DIR/rank-<N-1>.sock.

up prints a line that begins with "ready" when all sockets accept. A finite run ends by itself, with status 0, after
every rank has taken all batches. Ctrl-C or SIGTERM stops cleanly, with status 0. After SIGTERM, which schedulers send
to all processes of a job, trainers get batches until they leave, for --grace at most, so that they can end their step
and save it. Another signal stops at once.

DIR keeps the run's journal; --run-dir DIR is another way to write it. The next up on the same directory continues the
run, also after a kill. In a directory with history, each trainer declares its start: a saved state, "latest" or
"fresh".

If MIXTURE is -, up reads the mixture file from standard input. Its relative paths are relative to the working
directory.

Every role is a separate process, and up restarts a process that dies. A shadow takes over for a lost loader at once
(reliability.shadows in the mixture file). When a disk is full, the run waits. up prints "warning: …" when a
capability goes missing and "over: …" when it is back; millrace status lists the missing ones.

With --cluster, this up plans only while it has the run's lease in etcd. A run with ranks on several hosts needs an up
on each, with the same mixture file and --world-size, and with its own --first-rank (docs/cluster.md). The commands
orchestrator, loader, shadow and sidecar run one of the roles, for an engine that places them.`,
		Example: "  millrace up mixture.yaml runs/a --ranks 8\n" +
			"  millrace up mixture.yaml runs/a --ranks 8 --world-size 64 --first-rank 16 --cluster cluster.yaml",
		Args: serveArgs,
		RunE: func(c *cobra.Command, args []string) error { return serve(c, u, args) },
	}
	f := c.Flags()
	f.IntVar(&u.World, "world-size", 0, "trainer ranks of all hosts (default: --ranks)")
	servingFlags(f, &u.Serving)
	upFlags(f, u)
	f.StringVar(&u.Metrics, "metrics", "", "serve Prometheus metrics at http://ADDRESS/metrics, such as 127.0.0.1:9464")
	f.StringVar(&u.Placer, "placer", "",
		"`engine` to ask for more loaders if the run has several hosts: ray (default: none)")
	return c
}

// upFlags adds the flags of all commands that run roles.
func upFlags(f *pflag.FlagSet, u *up.Up) {
	f.StringVar(&u.RunDir, "run-dir", "", "another way to write DIR")
	f.StringVar(&u.Cluster, "cluster", "", "YAML file of the etcd cluster that the hosts of this run share")
	f.StringVar(&u.Listen, "listen", "",
		"host:port as the other hosts reach this one (default: listen of the cluster file)")
	f.DurationVar(&u.Grace, "grace", up.TrainersGrace,
		"`time` for which trainers may go on after SIGTERM; 0s: stop at once")
	f.StringVar(&u.Events, "events", "", "directory for event records of the roles, one JSON object a line")
}

// servingFlags adds the flags of commands that serve ranks.
func servingFlags(f *pflag.FlagSet, s *up.Serving) {
	f.IntVar(&s.Ranks, "ranks", 1, "trainer ranks on this host")
	f.IntVar(&s.First, "first-rank", 0, "first of this host's ranks, if there are more hosts")
	f.IntVar(&s.Index, "index", -1, "number of this host, from 0, if all have the same --ranks: sets --first-rank")
	f.UintSliceVar(&s.Users, "allow-uids", nil, "user ids whose trainers may connect, beside this user's")
}

// serveArgs wants a mixture file. The run directory may come behind it, or as --run-dir.
func serveArgs(c *cobra.Command, args []string) error {
	if n := len(args); n != 1 && n != 2 {
		return exactArgs(2, "one mixture file and one run directory")(c, args)
	}
	return nil
}

// serve runs an Up until it ends.
func serve(c *cobra.Command, u *up.Up, args []string) error {
	if len(args) == 2 {
		if u.RunDir != "" {
			return exit.Usagef("%s: %s beside --run-dir %s: write one of them", c.CommandPath(), args[1], u.RunDir)
		}
		u.RunDir = args[1]
	}
	u.Mixture, u.Out, u.Err = args[0], c.OutOrStdout(), c.ErrOrStderr()
	return u.Run(c.Context())
}

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/app/up"
)

func upCommand() *cobra.Command {
	u := &up.Up{Version: programVersion()}
	c := &cobra.Command{
		Use:   "up MIXTURE --ranks N --run-dir DIR",
		Short: "Serve a mixture to the trainer ranks of this host",
		Long: `Serve a mixture to the N trainer ranks of this host, on DIR/rank-0.sock … DIR/rank-<N-1>.sock.

up prints a line that begins with "ready" when all sockets accept. A finite run ends by itself, with status 0, after
every rank has taken all batches. Ctrl-C or SIGTERM stops cleanly, with status 0. After SIGTERM, which schedulers send
to all processes of a job, trainers get batches until they leave, for --grace at most, so that they can end their step
and save it. Another signal stops at once.

DIR keeps the run's journal. The next up on the same directory continues the run, also after a kill. In a directory with
history, each trainer declares its start: a saved state, "latest" or "fresh".

If MIXTURE is -, up reads the mixture file from standard input. Its relative paths are relative to the working
directory.

Every role is a separate process, and up restarts a process that dies. A shadow takes over for a lost loader at once
(reliability.shadows in the mixture file). When a disk is full, the run waits. up prints "warning: …" when a
capability goes missing and "over: …" when it is back; millrace status lists the missing ones.

With --cluster, this up plans only while it has the run's lease in etcd. A run with ranks on several hosts needs an up
on each, with the same mixture file and --world-size, and with its own --first-rank (docs/cluster.md). The commands
orchestrator, loader, shadow and sidecar run one of the roles, for an engine that places them.`,
		Example: "  millrace up mixture.yaml --ranks 8 --run-dir runs/a\n" +
			"  millrace up mixture.yaml --ranks 8 --world-size 64 --first-rank 16 --cluster cluster.yaml " +
			"--run-dir runs/a",
		Args: exactArgs(1, "one mixture file"),
		RunE: func(c *cobra.Command, args []string) error {
			return serve(c, u, args[0])
		},
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
	f.StringVar(&u.RunDir, "run-dir", "", "directory of this host for sockets and journal (required)")
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

// serve runs an Up until it ends.
func serve(c *cobra.Command, u *up.Up, mixture string) error {
	u.Mixture, u.Out, u.Err = mixture, c.OutOrStdout(), c.ErrOrStderr()
	return u.Run(c.Context())
}

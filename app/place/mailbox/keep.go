package mailbox

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace/app/cluster"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/placer"
)

const (
	retryDelay = 200 * time.Millisecond
	relist     = 10 * time.Second // the longest time without a look at the goal: a watch may be lost
	maxLine    = 1 << 20          // bytes of a list of processes
)

// Serve is Keep for the etcd cluster of a file.
func Serve(ctx context.Context, clusterFile string, in io.Reader, out io.Writer) error {
	f, err := cluster.Load(clusterFile)
	if err != nil {
		return err
	}
	cfg := f.Etcd()
	etcd, err := lease.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer etcd.Close()
	return Keep(ctx, etcd, cfg, in, out)
}

// Keep is the engine's side of a mailbox, for an engine of another language. It writes each new goal to out as a line
// of JSON, and records each line of in, a JSON list of processes. It returns nil at the end of in, or with ctx. While
// etcd does not answer, it tries again.
func Keep(ctx context.Context, etcd *clientv3.Client, cfg lease.EtcdConfig, in io.Reader, out io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	told := make(chan error, 1)
	go func() { // read below
		told <- tell(ctx, etcd, keysOf(cfg), out)
		end()
	}()
	heard := make(chan error, 1)
	// It may stay blocked in a read after ctx has ended; the process ends then.
	go func() {
		heard <- hear(ctx, etcd, keysOf(cfg), in)
		end()
	}()
	select {
	case err := <-told:
		return err
	case err := <-heard:
		<-told
		return err
	}
}

// tell writes each new goal.
func tell(ctx context.Context, etcd *clientv3.Client, k keys, out io.Writer) error {
	last := int64(0)
	for {
		goal, revision, err := readGoal(ctx, etcd, k)
		if err == nil && revision > last {
			last = revision
			line, err := json.Marshal(goal)
			if err == nil {
				_, err = out.Write(append(line, '\n'))
			}
			if err != nil {
				return fmt.Errorf("tell the engine the goal: %w", err)
			}
		}
		if err == nil {
			await(ctx, etcd, k, last+1)
		} else if ctx.Err() == nil && lease.IsFinal(err) {
			return fmt.Errorf("read the goal in etcd: %w", err)
		} else {
			sleep(ctx, retryDelay)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// await blocks until the goal may have changed since a revision.
func await(ctx context.Context, etcd *clientv3.Client, k keys, since int64) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), relist)
	defer cancel()
	<-etcd.Watch(ctx, k.desired, clientv3.WithRev(since)) // any answer leads to a look
}

// hear records the engine's reports.
func hear(ctx context.Context, etcd *clientv3.Client, k keys, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var list []placer.Instance
		if err := json.Unmarshal(lines.Bytes(), &list); err != nil {
			return fmt.Errorf("read the processes of the engine: %w", err)
		}
		for ctx.Err() == nil {
			call, cancel := context.WithTimeout(ctx, patience)
			_, err := etcd.Put(call, k.observed, lines.Text())
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() == nil && lease.IsFinal(err) {
				return fmt.Errorf("write the processes to etcd: %w", err)
			}
			sleep(ctx, retryDelay)
		}
	}
	return lines.Err()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

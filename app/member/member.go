// Package member runs one etcd member on this host, for development and tests.
package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"millrace/app/exit"
	"millrace/app/supervisor"
)

// Member is the settings of a member.
type Member struct {
	Dir     string // of its data
	Listen  string // loopback address for clients
	Program string // path of etcd; empty: Run looks for one
	Log     io.Writer
	Ready   func(url string) // called when the member answers
}

const (
	answerEvery = 50 * time.Millisecond
	patience    = time.Minute      // until the first answer
	grace       = 10 * time.Second // from SIGTERM to SIGKILL
)

// Run runs the member until ctx or the process of MILLRACE_PARENT ends, and stops it cleanly. The error says why the
// member ended before.
func (m Member) Run(ctx context.Context) error {
	ctx, leave, err := supervisor.WithParent(ctx)
	if err != nil {
		return err
	}
	defer leave()
	host, _, err := net.SplitHostPort(m.Listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return exit.Usagef("millrace etcd: --listen %s: want a loopback address with a port, such as 127.0.0.1:2379: "+
			"the member has no passwords and no encryption", m.Listen)
	}
	program, err := m.find()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.Dir, 0o700); errors.Is(err, syscall.ENOTDIR) {
		return exit.Usagef("millrace etcd: --dir %s is a file: name a directory for the data", m.Dir)
	} else if err != nil {
		return exit.Failuref("millrace etcd: make the directory of the data: %v", err)
	}
	// The death signal follows the thread that starts the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	url := "http://" + m.Listen
	running, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(running, program, "--name", "millrace", "--data-dir", m.Dir, "--log-level", "error",
		"--listen-client-urls", url, "--advertise-client-urls", url,
		// A single member has no peers; port 0 is a free one.
		"--listen-peer-urls", "http://127.0.0.1:0", "--initial-advertise-peer-urls", "http://127.0.0.1:0",
		"--initial-cluster", "millrace=http://127.0.0.1:0")
	log := untilEnd{running, m.Log}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	if err := cmd.Start(); err != nil {
		return exit.Failuref("millrace etcd: start %s: %v", program, err)
	}
	answers := make(chan error, 1)
	go func() { // ends with running; read below
		err := m.await(running, url)
		if err != nil {
			stop()
		}
		answers <- err
	}()
	ended := cmd.Wait()
	stop()
	unanswered := <-answers
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(unanswered, errSilent):
		return exit.Failuref("millrace etcd: %v", unanswered)
	}
	return exit.Failuref("millrace etcd: %s ended by itself: %v", program, ended)
}

// untilEnd passes on a program's output until ctx ends. etcd reports its own clean stop as errors with their stacks.
type untilEnd struct {
	ctx context.Context
	to  io.Writer
}

func (u untilEnd) Write(text []byte) (int, error) {
	if u.ctx.Err() != nil {
		return len(text), nil
	}
	return u.to.Write(text)
}

// find returns the path of an etcd program.
func (m Member) find() (string, error) {
	if m.Program != "" {
		return m.Program, nil
	}
	if path, err := exec.LookPath("etcd"); err == nil {
		return path, nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		// tools/etcd.sh builds it there. The pattern is valid.
		if built, _ := filepath.Glob(filepath.Join(cache, "millrace", "etcd-*", "etcd")); len(built) > 0 {
			return built[len(built)-1], nil
		}
	}
	return "", exit.Failuref("millrace etcd: there is no program etcd: install it (on Debian: " +
		"apt-get install etcd-server), build it with tools/etcd.sh of Millrace's sources, or name one with --program")
}

// errSilent: the member does not answer.
var errSilent = errors.New("the member does not answer")

// await calls Ready once the member answers.
func (m Member) await(ctx context.Context, url string) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for late := time.After(patience); ; {
		if answer, err := client.Get(url + "/health"); err == nil {
			text, _ := io.ReadAll(answer.Body) // an unread answer is none
			answer.Body.Close()
			if strings.Contains(string(text), `"true"`) {
				m.Ready(url)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-late:
			return fmt.Errorf("%w within %v", errSilent, patience)
		case <-time.After(answerEvery):
		}
	}
}

package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startUp starts a supervisor process and waits until its children serve.
func startUp(t *testing.T, loader string) (cmd *exec.Cmd, dir string, pids []int) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	cmd = exec.Command(self, "up", dir)
	cmd.Env = append(os.Environ(), "LOADER_PART="+loader)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("stdout %q, %v", line, err)
	}
	roles, err := ReadRoles(dir)
	if err != nil || len(roles) != 3 {
		t.Fatalf("roles %v, %v", roles, err)
	}
	for _, r := range roles {
		if r.State != Running || r.Pid == 0 {
			t.Fatalf("%+v is not running", r)
		}
		pids = append(pids, r.Pid)
	}
	return cmd, dir, pids
}

func TestChildrenShowTheirRole(t *testing.T) {
	cmd, _, pids := startUp(t, "serve")
	for _, pid := range pids {
		proc := filepath.Join("/proc", itoa(pid))
		line, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if !strings.HasPrefix(string(line), "millrace\x00serve\x00") {
			t.Errorf("command line %q", line)
		}
		if comm, _ := os.ReadFile(filepath.Join(proc, "comm")); string(comm) != "millrace\n" {
			t.Errorf("name %q", comm)
		}
		if group, _ := syscall.Getpgid(pid); group != pid {
			t.Errorf("process %d is in group %d: a terminal's Ctrl-C would reach it", pid, group)
		}
	}
	stopUp(t, cmd, syscall.SIGINT)
}

func stopUp(t *testing.T, cmd *exec.Cmd, s syscall.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("clean stop: %v", err)
	}
}

func TestKilledSupervisorLeavesNothing(t *testing.T) {
	for _, loader := range []string{"serve", "deaf"} {
		t.Run(loader, func(t *testing.T) {
			cmd, dir, pids := startUp(t, loader)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			eventually(t, "all orphans leaving", func() bool {
				for _, pid := range pids {
					if !gone(pid) && !zombie(pid) {
						return false
					}
				}
				return true
			})
			for _, f := range []string{"run", "rank-0.sock"} {
				if _, err := os.Stat(filepath.Join(dir, f)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is left: %v", f, err)
				}
			}
		})
	}
}

// zombie reports whether a process is dead but not reaped. The first process of a container may not reap.
func zombie(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// A successor starts while the orphans of a killed supervisor still hold the run directory. It waits for them, and they
// do not remove its files.
func TestSuccessorOfAKilledSupervisor(t *testing.T) {
	cmd, dir, _ := startUp(t, "deaf")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	result, err := Run(
		ctx,
		Config{
			RunDir:   dir,
			Stderr:   &text{},
			Children: []Child{child("loader", "loader-0", "serve", dir)},
			OnReady: func() {
				if _, err := os.Stat(filepath.Join(dir, "rank-0.sock")); err != nil {
					t.Errorf("the socket: %v", err)
				}
				cancel()
			},
		},
	)
	if result != Stopped || err != nil {
		t.Fatalf("got %v, %v", result, err)
	}
}

// A stopped child does not hold the directory after its supervisor was killed, even if it was stopped earlier and
// replaced. A successor is ready within a second.
func TestSuccessorWhileAnOrphanIsStopped(t *testing.T) {
	cmd, dir, pids := startUp(t, "serve")
	if err := syscall.Kill(pids[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The dead supervisor is not reaped yet: it is a zombie.
	succeed(t, dir)
	_ = cmd.Wait()
}

// An orphan that does not leave is killed. Another process that has the directory open is not killed.
func TestSuccessorKillsWhatDoesNotLeave(t *testing.T) {
	cmd, dir, pids := startUp(t, "deaf") // leaves so late that it can be stopped first
	reader := exec.Command("sleep", "60")
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	reader.ExtraFiles = []*os.File{held}
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Process.Kill(); _ = reader.Wait() }()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// The kernel resumes processes that were stopped when they became orphans. This one is stopped afterwards.
	if err := syscall.Kill(pids[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	said := succeed(t, dir)
	if !gone(pids[1]) && !zombie(pids[1]) {
		t.Error("the stopped orphan is left")
	}
	if gone(reader.Process.Pid) || zombie(reader.Process.Pid) {
		t.Error("a bystander was killed")
	}
	want := fmt.Sprintf("process %d of a killed `millrace up` does not leave; killing it\n", pids[1])
	if !strings.Contains(said, want) {
		t.Errorf("said %q", said)
	}
}

// succeed runs a supervisor on dir until it is ready, and returns its output.
func succeed(t *testing.T, dir string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	said := &text{}
	result, err := Run(
		ctx,
		Config{
			RunDir:   dir,
			Stderr:   said,
			Children: []Child{child("loader", "loader-0", "serve", dir)},
			OnReady:  cancel,
		},
	)
	if result != Stopped || err != nil {
		t.Fatalf("got %v, %v", result, err)
	}
	return said.String()
}

func TestSecondSignalKills(t *testing.T) {
	cmd, dir, pids := startUp(t, "stubborn")
	start := time.Now()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sidecar leaving", func() bool { return gone(pids[2]) })
	stopUp(t, cmd, syscall.SIGINT)
	if took := time.Since(start); took > upGrace {
		t.Errorf("took %v, so the second signal had no effect", took)
	}
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(RuntimeDir(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("runtime directory: %v", err)
	}
}

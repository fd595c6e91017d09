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

// startUp runs the supervisor as a process of its own and waits until its children serve.
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

// zombie tells a dead process that nobody has reaped: this container's first process may not.
func zombie(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// A successor starts while the orphans of a killed supervisor still hold the run directory: it waits for them, and they do not take its
// files with them.
func TestSuccessorOfAKilledSupervisor(t *testing.T) {
	cmd, dir, _ := startUp(t, "deaf")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	result, err := Run(ctx, Config{RunDir: dir, Stderr: &text{}, Children: []Child{child("loader", "loader-0", "serve", dir)}, OnReady: func() {
		if _, err := os.Stat(filepath.Join(dir, "rank-0.sock")); err != nil {
			t.Errorf("the socket: %v", err)
		}
		cancel()
	}})
	if result != Stopped || err != nil {
		t.Fatalf("got %v, %v", result, err)
	}
}

// A child that is stopped when its supervisor is killed, or that was stopped before and replaced, does not keep the directory from a
// successor, which is there within a second.
func TestSuccessorWhileAnOrphanIsStopped(t *testing.T) {
	cmd, dir, pids := startUp(t, "serve")
	if err := syscall.Kill(pids[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Not waited for: the dead supervisor is a zombie meanwhile.
	succeed(t, dir)
	_ = cmd.Wait()
}

// An orphan that does not leave is killed, since it is ours; what else has the directory open is not.
func TestSuccessorKillsWhatDoesNotLeave(t *testing.T) {
	cmd, dir, pids := startUp(t, "deaf") // leaves late enough to be stopped first
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
	// The kernel wakes what was stopped when it became an orphan; this one is stopped after that.
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
	if want := fmt.Sprintf("process %d of a killed `millrace up` does not leave; it is killed\n", pids[1]); !strings.Contains(said, want) {
		t.Errorf("said %q", said)
	}
}

// succeed runs a supervisor on dir until it is ready, and returns what it said.
func succeed(t *testing.T, dir string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	said := &text{}
	result, err := Run(ctx, Config{RunDir: dir, Stderr: said, Children: []Child{child("loader", "loader-0", "serve", dir)}, OnReady: cancel})
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
		t.Errorf("took %v, so the second signal was not heard", took)
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

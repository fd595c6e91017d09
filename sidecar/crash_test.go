package sidecar_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"millrace/sidecar"
	"millrace/sidecar/sidecartest"
)

// trainerArg makes the test binary a trainer process. The process takes a batch, leaves its socket open in a child, and
// waits until it is killed.
const trainerArg = "be-a-trainer"

func trainer(path string) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		fmt.Println("dial:", err)
		return
	}
	if _, err := c.Write(msg{kind: hello, rank: ^uint32(0), body: []byte(`{"start":"fresh"}`)}.bytes()); err != nil {
		fmt.Println("hello:", err)
		return
	}
	buf := make([]byte, 1<<17)
	for kind := byte(0); kind != batchMsg; kind = buf[6] {
		if n, err := c.Read(buf); n == 0 {
			fmt.Println("read:", err)
			return
		}
	}
	file, err := c.File()
	if err != nil {
		fmt.Println("file:", err)
		return
	}
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{file}
	if err := child.Start(); err != nil {
		fmt.Println("fork:", err)
		return
	}
	fmt.Println("holding", child.Process.Pid)
	select {}
}

// TestTrainerKilled: a trainer dies by kill -9 while it holds frames and a forked child keeps its socket open. Only the
// pidfd reports the death.
func TestTrainerKilled(t *testing.T) {
	h := open(t, sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16}, nil)
	cmd := exec.Command(os.Args[0], trainerArg, h.path(0))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, convErr := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), "holding "))
	if err != nil || convErr != nil {
		t.Fatalf("the trainer said %q, %v", line, err)
	}
	defer func() { _ = unix.Kill(pid, unix.SIGKILL) }()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if e := h.until(sidecar.Gone, 1); e.Pid != cmd.Process.Pid {
		t.Errorf("process %d is gone, killed was %d", e.Pid, cmd.Process.Pid)
	}
	if unix.Kill(pid, 0) != nil {
		t.Fatal("the child that keeps the socket open died: the test shows nothing")
	}
	next := dial(t, h.path(0))
	next.hello("latest", nil)
	next.want(begin)
	if b := next.want(batchMsg); b.step != 0 || b.ring != 0 || b.generation != 1 {
		t.Errorf("the next trainer got %+v, want new memory and the first batch that is not committed", b)
	}
}

// TestLastWords: messages that a trainer sent before it left still count, and go upstream before its Left.
func TestLastWords(t *testing.T) {
	h := open(t, sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16}, nil)
	for attempt := range 20 {
		tr := dial(t, h.path(0))
		tr.hello("latest", nil)
		b := tr.want(begin)
		if b.step != uint64(attempt) {
			t.Fatalf("began at step %d, %d were committed", b.step, attempt)
		}
		m := tr.want(batchMsg)
		tr.send(msg{kind: commit, attempt: b.attempt, step: m.step})
		tr.close()
	}
}

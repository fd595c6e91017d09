package secure_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/proto"
)

// inNamespace is set in the process that runs in a network namespace of its own.
const inNamespace = "MILLRACE_TEST_IN_NAMESPACE"

// TestPeerVanishes: without a word from the network, both ends of idle and of busy connections end within the bound.
// Before that, an idle connection lives on.
func TestPeerVanishes(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		enterNamespace(t)
		return
	}
	setLoopback(t, true)
	ca := newCA(t)
	c, _ := credentials(t, ca.files("127.0.0.1", secure.Roles()...))
	address, o := serve(t, c, "127.0.0.1:0")
	ended := make(chan string, 4)
	o.ended = func() { ended <- "a server's stream" }
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	open := func(name string) proto.Orchestrator_ServeClient {
		stream, err := client(t, c, address).Serve(ctx)
		if err != nil {
			t.Fatal(err)
		}
		<-o.served
		go func() { // the test waits for its word
			_, _ = stream.Recv()
			ended <- name
		}()
		return stream
	}
	open("the idle client")
	busy := open("the busy client")
	go func() { // ends with the stream
		for busy.Send(&proto.SidecarEvent{}) == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	select {
	case name := <-ended:
		t.Fatalf("%s ended on a healthy network", name)
	case <-time.After(2 * seam.DeadPeer):
	}
	begin := time.Now()
	setLoopback(t, false)
	for range 4 {
		select {
		case name := <-ended:
			t.Logf("%s ended after %v", name, time.Since(begin).Round(10*time.Millisecond))
		case <-time.After(time.Until(begin.Add(seam.DeadPeer + 3*time.Second))):
			t.Fatalf("a connection lives %v after the network is gone", time.Since(begin))
		}
	}
	if early := time.Since(begin); early < seam.DeadPeer/2 {
		t.Errorf("all ended after %v: not by the bound", early)
	}
}

// enterNamespace runs the test in another process that has a network of its own.
func enterNamespace(t *testing.T) {
	c := exec.Command(os.Args[0], "-test.run=^TestPeerVanishes$", "-test.v", "-test.timeout=1m")
	c.Env = append(os.Environ(), inNamespace+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := exec.Command("unshare", "-Urn", "true").Run(); err != nil {
		t.Skipf("this system makes no network namespace: %v", err)
	}
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// setLoopback raises the interface of a namespace, or takes it down: packets are lost then.
func setLoopback(t *testing.T, up bool) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	if up {
		request.SetUint16(unix.IFF_UP)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		t.Fatal(err)
	}
}

// TestPeerStopsReading: bytes that the other process never reads end the connection.
func TestPeerStopsReading(t *testing.T) {
	t.Parallel()
	l, err := seam.SystemNet{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := seam.SystemNet{}.Dial(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	begin, block := time.Now(), make([]byte, 1<<20)
	for err == nil {
		_, err = conn.Write(block)
	}
	took := time.Since(begin)
	if !errors.Is(err, syscall.ETIMEDOUT) || took > seam.DeadPeer+patience || took < seam.DeadPeer/2 {
		t.Errorf("after %v: %v", took, err)
	}
	t.Logf("the connection ended after %v: %v", took, err)
}

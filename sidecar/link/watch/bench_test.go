package watch

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"millrace/proto"
)

// load is the number of busy goroutines in this process and in the watched one, and of busy processes beside them.
type load struct {
	name                string
	here, there, beside int
}

var loads = []load{{"idle", 0, 0, 0}, {"full", 2, 2, 0}, {"fuller", 4, 8, 8}}

// begin keeps the machine busy until the returned function is called.
func (l load) begin(b *testing.B) (end func()) {
	stop := make(chan struct{})
	for range l.here {
		go burn(stop) // ends with stop
	}
	var others []*exec.Cmd
	for range l.beside {
		cmd, _ := start(b, 1)
		others = append(others, cmd)
	}
	return func() {
		close(stop)
		for _, cmd := range others {
			_ = cmd.Process.Kill()
		}
	}
}

// BenchmarkDetect measures the time until a loader of another host is judged silent, that was stopped or whose host
// disappeared, and until the end of a stream of a killed one: -benchtime 200x.
func BenchmarkDetect(b *testing.B) {
	for _, l := range loads {
		for _, how := range []string{"killed", "stopped", "cut"} {
			b.Run(l.name+"/"+how, func(b *testing.B) {
				defer l.begin(b)()
				var took []time.Duration
				early := 0
				for range b.N {
					d, isEarly := detect(b, how, l.there)
					if isEarly {
						early++
					}
					took = append(took, d)
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/p50")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms/p99")
				b.ReportMetric(float64(early), "early")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// detect returns the time until the first sign that a process is dead.
func detect(b *testing.B, how string, burning int) (took time.Duration, isEarly bool) {
	cmd, address := start(b, burning)
	wire, near := newRelay(b, address)
	via := near
	if how == "killed" {
		via = address // the relay would delay the reset
	}
	conn := connect(b, via)
	w := patrolling(b, conn)
	x := w.Attend(Process{Name: "loader-0", Address: address, IsRemote: true})
	defer w.Detach(x)
	other, err := proto.NewLoaderClient(conn).Beat(b.Context(), &proto.BeatRequest{}) // in place of a fetch
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		for {
			if _, err := other.Recv(); err != nil {
				return
			}
		}
	}()
	eventually(b, func() bool { return beatsOf(x) > 5 })
	_, isEarly = await(w, x, 100*time.Millisecond)
	began := time.Now()
	switch how {
	case "killed":
		_ = cmd.Process.Kill()
	case "stopped":
		_ = cmd.Process.Signal(syscall.SIGSTOP)
	case "cut":
		wire.cut()
	}
	select {
	case <-ended:
	case <-w.Silence(x):
	}
	took = time.Since(began)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	conn.Close()
	<-ended
	return took, isEarly
}

// BenchmarkFalse counts wrong verdicts about a living process of another host in b.N seconds: -benchtime 60x.
func BenchmarkFalse(b *testing.B) {
	for _, l := range loads {
		b.Run(l.name, func(b *testing.B) {
			defer l.begin(b)()
			_, address := start(b, l.there)
			w := patrolling(b, connect(b, address))
			far := Process{Name: "loader-0", Address: address, IsRemote: true}
			wrong, worst := 0, 0
			for end := time.Now().Add(time.Duration(b.N) * time.Second); time.Now().Before(end); {
				x := w.Attend(far)
				if _, isDead := await(w, x, min(time.Until(end), time.Second)); isDead {
					wrong++
					time.Sleep(100 * time.Millisecond)
				}
				w.Detach(x)
				worst = max(worst, x.beats.wire.Sample().Slow)
			}
			b.ReportMetric(float64(wrong), "false")
			b.ReportMetric(float64(worst), "slow")
			b.ReportMetric(0, "ns/op")
		})
	}
	if testing.Verbose() {
		fmt.Fprintln(os.Stderr, "loads:", loads)
	}
}

package heartbeat

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// load is the number of busy goroutines in this process and in the watched one.
type load struct {
	name        string
	here, there int
}

var loads = []load{{"idle", 0, 0}, {"full", 2, 2}, {"fuller", 4, 8}}

// burnHere keeps n goroutines busy until the returned function is called.
func burnHere(n int) func() {
	stop := make(chan struct{})
	ended := make(chan struct{}, n)
	for range n {
		go func() { // stop waits for it
			for x := uint64(1); ; x = x*6364136223846793005 + 1 {
				if x&0xffff == 1 {
					select {
					case <-stop:
						ended <- struct{}{}
						return
					default:
						runtime.KeepAlive(x)
					}
				}
			}
		}()
	}
	return func() {
		close(stop)
		for range n {
			<-ended
		}
	}
}

// BenchmarkDetect measures the time until a killed or stopped process is silent: -benchtime 200x.
func BenchmarkDetect(b *testing.B) {
	for _, l := range loads {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			b.Run(l.name+"/"+sig.String(), func(b *testing.B) {
				defer burnHere(l.here)()
				var took []time.Duration
				early := 0
				for range b.N {
					p := start(b, l.there)
					m, err := Files{}.Open(p.path)
					if err != nil {
						b.Fatal(err)
					}
					j := NewJudge(time.Hour, new(Caution))
					if v, _ := watch(m, j, 50*time.Millisecond); v != Alive {
						early++
					}
					_ = p.cmd.Process.Signal(sig)
					_, d := watch(m, j, time.Minute)
					took = append(took, d)
					_ = m.Close()
					_ = p.cmd.Process.Kill()
					_ = p.cmd.Wait()
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

// BenchmarkFalse counts wrong verdicts about a living process in b.N seconds: -benchtime 60x.
func BenchmarkFalse(b *testing.B) {
	for _, l := range loads {
		b.Run(l.name, func(b *testing.B) {
			defer burnHere(l.here)()
			p := start(b, l.there)
			m, err := Files{}.Open(p.path)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			j := NewJudge(time.Hour, new(Caution))
			wrong := 0
			for end := time.Now().Add(time.Duration(b.N) * time.Second); time.Now().Before(end); {
				if v, _ := watch(m, j, time.Until(end)); v != Alive {
					wrong++
					j.Rest()
				}
			}
			b.ReportMetric(float64(wrong), "false")
			b.ReportMetric(float64(j.late.Microseconds())/1000, "ms/late")
			b.ReportMetric(0, "ns/op")
		})
	}
}

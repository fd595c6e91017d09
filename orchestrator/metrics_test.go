package orchestrator

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/checkpoint/disk/disktest"
	"millrace/proto"
)

func TestStatusAndMetricsSayTheSame(t *testing.T) {
	l := live(t, newConfig(t, 2), disktest.NewMemory())
	l.load(0)
	l.serve("fresh", 2, 5, quiet).reach(t, 2, 5)
	st, err := proto.NewOrchestratorClient(l.conn).Status(context.Background(), &proto.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var roles []string
	for _, r := range st.Roles {
		if hits := r.GetCache().GetHits(); (hits == 3) != (r.Role == "loader") {
			t.Errorf("%s has %d hits of its token cache", r.Name, hits)
		}
		roles = append(roles, fmt.Sprintf("%s %s %s %d", r.Role, r.Name, r.State, r.Term))
	}
	if got, want := strings.Join(roles, "; "), "orchestrator orchestrator running 1; loader loader-0 running 2; "+
		"sidecar sidecar-0 running 1"; got != want {
		t.Errorf("roles %s, want %s", got, want)
	}
	if st.Step != 5 || st.Planned != 8 || st.Fence.Attempt != 1 || st.Waiting != "" || st.Ended ||
		len(st.Sources) != 2 {
		t.Errorf("status %v", st)
	}
	var share float64
	for name, s := range st.Sources {
		share += s.Share
		if s.Tokens == 0 || s.Samples == 0 || s.Offered <= s.Ordinal {
			t.Errorf("source %s: %v", name, s)
		}
	}
	if share < 0.999 || share > 1.001 {
		t.Errorf("the shares add up to %v", share)
	}
	body := l.scrape()
	for _, want := range []string{"millrace_step 5\n", "millrace_planned_steps 8\n", "millrace_term 1\n",
		"millrace_quarantined_total 0\n",
		"millrace_gpu_busy_ratio{gpu=\"GPU-1\",rank=\"0\"} 0.25\n",
		"millrace_gpu_idle_seconds_total{cause=\"data\",gpu=\"GPU-1\",rank=\"0\"} 12\n",
		"millrace_gpu_throttled{gpu=\"GPU-1\",rank=\"0\",reason=\"heat\"} 1\n",
		"millrace_cache_hits_total{loader=\"loader-0\"} 3\n", "millrace_cache_bytes{store=\"host:/tokens\"} 7\n",
		fmt.Sprintf("millrace_source_samples_total{source=%q} %d\n", "web", st.Sources["web"].Samples)} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing in\n%s", want, body)
		}
	}
}

// scrape serves metrics, reads them once and stops serving.
func (l *life) scrape() string {
	l.t.Helper()
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	address := probe.Addr().String()
	if err := ServeMetrics(context.Background(), address, l.o); err == nil ||
		!strings.Contains(err.Error(), "choose a free address") {
		l.t.Errorf("an address in use: %v", err)
	}
	probe.Close()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- ServeMetrics(ctx, address, l.o) }() // read below
	defer func() {
		cancel()
		if err := <-served; err != nil {
			l.t.Errorf("after the end: %v", err)
		}
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		r, err := client.Get("http://" + address + "/metrics")
		if err != nil {
			continue
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			l.t.Fatal(err)
		}
		return string(body)
	}
	l.t.Fatal("metrics are not served")
	return ""
}

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"millrace/proto"
)

// collector answers a scrape from the loop's own status, so that metrics and status can never differ.
type collector struct {
	s                                      *Server
	step, planned, quarantined, term       *prometheus.Desc
	tokens, samples, share, epoch, offered *prometheus.Desc
	masked, switches, unprotected, alert   *prometheus.Desc
	passed                                 *prometheus.Desc
	weight, fit, reports, changes          *prometheus.Desc
}

func newCollector(o *Orchestrator) *collector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("millrace_"+name, help, labels, nil)
	}
	return &collector{s: NewServer(o),
		step:        d("step", "First step that not every rank has consumed."),
		planned:     d("planned_steps", "Steps sealed."),
		quarantined: d("quarantined_total", "Records quarantined."),
		term:        d("term", "Fencing number of the orchestrator."),
		tokens:      d("source_tokens_total", "Document tokens consumed by every rank.", "source"),
		samples:     d("source_samples_total", "Documents begun.", "source"),
		passed: d("source_passed_over_total",
			"Documents consumed that count nothing: refused by filters, without tokens, or rejected.", "source"),
		share:       d("source_share", "Realised share of all tokens.", "source"),
		epoch:       d("source_epoch", "Pass over the source.", "source"),
		masked:      d("masked_total", "Segments that were masked after their step was planned."),
		switches:    d("switches_total", "Stripes that a standby took over while this orchestrator runs."),
		unprotected: d("unprotected_stripes", "Stripes without a standby that could take over at once."),
		alert:       d("alert", "1 while the run has an alert of this kind.", "kind"),
		weight: d("source_weight", "Share of the mixture that is in force at the next step to be planned.",
			"source"),
		changes: d("mixture_changes_total", "Changes of the mixture that the journal holds."),
		reports: d("reported_times_total", "Times of microbatches that trainers reported to this orchestrator."),
		fit: d("cost_r2",
			"Part of the variance of reported times that the predicted cost explains, by the coefficients in force "+
				"or the best.", "coefficients"),
		offered: d("source_offered_ordinals", "Ordinals whose metadata is known.", "source"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.step, c.planned, c.quarantined, c.term, c.tokens, c.samples, c.share,
		c.epoch, c.offered, c.masked, c.switches, c.unprotected, c.alert, c.weight, c.fit, c.reports, c.changes,
		c.passed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	st, err := c.s.Status(ctx, &proto.StatusRequest{})
	if err != nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(c.step, float64(st.Step))
	gauge(c.planned, float64(st.Planned))
	gauge(c.term, float64(st.Fence.Term))
	counter(c.quarantined, float64(st.Quarantined))
	counter(c.masked, float64(st.Masked))
	counter(c.switches, float64(st.Switches))
	alerts := map[string]float64{}
	for _, a := range st.Alerts {
		alerts[a.Kind] = 1
	}
	for _, kind := range alertKinds() {
		gauge(c.alert, alerts[kind], kind)
	}
	var unprotected uint32
	for name, s := range st.Sources {
		unprotected += s.Unprotected
		counter(c.tokens, float64(s.Tokens), name)
		counter(c.samples, float64(s.Samples), name)
		counter(c.passed, float64(s.PassedOver), name)
		gauge(c.share, s.Share, name)
		gauge(c.epoch, float64(s.Epoch), name)
		gauge(c.offered, float64(s.Offered), name)
	}
	gauge(c.unprotected, float64(unprotected))
	counter(c.changes, float64(len(st.Mixture.GetChanges())))
	for _, w := range st.Mixture.GetWeights() {
		if share, err := strconv.ParseFloat(w.Weight, 64); err == nil {
			gauge(c.weight, share, w.Source)
		}
	}
	if f := st.Mixture.GetCalibration(); f != nil {
		counter(c.reports, float64(f.Reports))
		gauge(c.fit, f.R2, "in force")
		gauge(c.fit, f.BestR2, "best")
	}
}

// ServeMetrics serves /metrics on a TCP address until ctx ends.
func ServeMetrics(ctx context.Context, address string, o *Orchestrator) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(o), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w: choose a free address with --metrics", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

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

	"millrace/orchestrator/figures"
	"millrace/proto"
)

// collector answers a scrape from the loop's own status, so that metrics and status can never differ.
type collector struct {
	s                                      *Server
	step, planned, quarantined, term       *prometheus.Desc
	tokens, samples, share, epoch, offered *prometheus.Desc
	masked, switches, unprotected, alert   *prometheus.Desc
	passed, missing, tooLong, bad          *prometheus.Desc
	weight, fit, reports, changes          *prometheus.Desc
	loaders                                *prometheus.Desc
	cache                                  cacheDescs
	gpu                                    gpuDescs
	figures                                *figures.Collector
}

func newCollector(o *Orchestrator) *collector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("millrace_"+name, help, labels, nil)
	}
	return &collector{s: NewServer(o), cache: newCacheDescs(d), gpu: newGPUDescs(d), figures: figures.NewCollector(d),
		step:        d("step", "First step that not every rank has consumed."),
		planned:     d("planned_steps", "Steps sealed."),
		quarantined: d("quarantined_total", "Records quarantined."),
		term:        d("term", "Fencing number of the orchestrator."),
		tokens:      d("source_tokens_total", "Document tokens consumed by every rank.", "source"),
		samples:     d("source_samples_total", "Documents begun.", "source"),
		passed: d("source_passed_over_total",
			"Documents consumed that count nothing: refused by filters, without tokens, or rejected.", "source"),
		missing: d("source_missing_total", "Records left out because a field is missing (missing: skip).", "source"),
		tooLong: d("source_too_long_total",
			"Documents longer than their source allows (too_long): truncated, dropped or split.", "source"),
		bad:         d("source_quarantined_total", "Records of the source that were quarantined.", "source"),
		share:       d("source_share", "Realised share of all tokens.", "source"),
		epoch:       d("source_epoch", "Pass over the source.", "source"),
		masked:      d("masked_total", "Segments that were masked after their step was planned."),
		switches:    d("switches_total", "Stripes that a standby took over while this orchestrator runs."),
		unprotected: d("unprotected_stripes", "Stripes without a standby that could take over at once."),
		alert:       d("alert", "1 while the run has an alert of this kind.", "kind"),
		weight: d("source_weight", "Share of the mixture that is in force at the next step to be planned.",
			"source"),
		loaders: d("loaders", "Loaders that the run wishes, and those that are there. Absent if the number is fixed.",
			"state"),
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
		c.passed, c.missing, c.tooLong, c.bad, c.loaders} {
		ch <- d
	}
	c.cache.describe(ch)
	c.gpu.describe(ch)
	c.figures.Describe(ch)
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
		counter(c.missing, float64(s.Missing), name)
		counter(c.tooLong, float64(s.TooLong), name)
		counter(c.bad, float64(s.Quarantined), name)
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
	if s := st.Scaling; s != nil {
		gauge(c.loaders, float64(s.Wished), "wished")
		gauge(c.loaders, float64(s.There), "there")
	}
	c.cache.collect(st.Roles, gauge, counter)
	c.gpu.collect(st.Gpus, gauge, counter)
	c.figures.Collect(st.Delivery, gauge, counter)
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

// cacheDescs describe the figures of token caches. Loaders of one host share a store.
type cacheDescs struct {
	hits, misses, filled, evicted, damaged, leftOut, failed, waiting, held, limit *prometheus.Desc
}

func newCacheDescs(d func(name, help string, labels ...string) *prometheus.Desc) cacheDescs {
	return cacheDescs{
		hits:    d("cache_hits_total", "Records that a loader read from the token cache.", "loader"),
		misses:  d("cache_misses_total", "Records that a loader read from their shards.", "loader"),
		filled:  d("cache_filled_total", "Entries of the token cache that a loader wrote.", "loader"),
		evicted: d("cache_evicted_total", "Entries that a loader removed to make room.", "loader"),
		damaged: d("cache_damaged_total", "Entries that a loader removed because their bytes were wrong.", "loader"),
		leftOut: d("cache_left_out_total", "Shards without an entry: the limit or the disk had no room.", "loader"),
		failed:  d("cache_failed_total", "Shards without an entry: reading or writing failed.", "loader"),
		waiting: d("cache_waiting_shards", "Shards whose entries a loader has yet to write.", "loader"),
		held:    d("cache_bytes", "Bytes of all files of a token cache.", "store"),
		limit:   d("cache_limit_bytes", "Limit of the bytes of a token cache.", "store"),
	}
}

func (c *cacheDescs) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.hits, c.misses, c.filled, c.evicted, c.damaged, c.leftOut, c.failed,
		c.waiting, c.held, c.limit} {
		ch <- d
	}
}

// collect gives each store's bytes once.
func (c *cacheDescs) collect(roles []*proto.RoleStatus, gauge, counter func(*prometheus.Desc, float64, ...string)) {
	stores := map[string]*proto.CacheFigures{}
	for _, role := range roles {
		f := role.Cache
		if f == nil {
			continue
		}
		counter(c.hits, float64(f.Hits), role.Name)
		counter(c.misses, float64(f.Misses), role.Name)
		counter(c.filled, float64(f.Filled), role.Name)
		counter(c.evicted, float64(f.Evicted), role.Name)
		counter(c.damaged, float64(f.Damaged), role.Name)
		counter(c.leftOut, float64(f.LeftOut), role.Name)
		counter(c.failed, float64(f.Failed), role.Name)
		gauge(c.waiting, float64(f.Waiting), role.Name)
		if old := stores[f.Store]; old == nil || f.Held > old.Held {
			stores[f.Store] = f
		}
	}
	for name, f := range stores {
		if f.Held >= 0 {
			gauge(c.held, float64(f.Held), name)
		}
		gauge(c.limit, float64(f.Limit), name)
	}
}

// gpuDescs describe the GPUs of the connected ranks.
type gpuDescs struct {
	busy, used, memory, received, transmitted, clock, mostClock, throttled, idle *prometheus.Desc
}

func newGPUDescs(d func(name, help string, labels ...string) *prometheus.Desc) gpuDescs {
	return gpuDescs{
		busy:        d("gpu_busy_ratio", "Part of the time in which a kernel ran on the rank's GPU.", "rank", "gpu"),
		used:        d("gpu_memory_used_bytes", "Memory in use on the rank's GPU.", "rank", "gpu"),
		memory:      d("gpu_memory_bytes", "Memory of the rank's GPU.", "rank", "gpu"),
		received:    d("gpu_pcie_received_bytes_per_second", "PCIe traffic into the rank's GPU.", "rank", "gpu"),
		transmitted: d("gpu_pcie_transmitted_bytes_per_second", "PCIe traffic out of the rank's GPU.", "rank", "gpu"),
		clock:       d("gpu_clock_mhz", "Clock of the GPU's multiprocessors.", "rank", "gpu"),
		mostClock:   d("gpu_most_clock_mhz", "Highest clock of the GPU's multiprocessors.", "rank", "gpu"),
		throttled:   d("gpu_throttled", "1 while the rank's GPU runs slower for this reason.", "rank", "gpu", "reason"),
		idle: d("gpu_idle_seconds_total",
			"Time in which the rank's GPU was idle while its trainer waited for data, or else (other).",
			"rank", "gpu", "cause"),
	}
}

func (c *gpuDescs) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.busy, c.used, c.memory, c.received, c.transmitted, c.clock, c.mostClock,
		c.throttled, c.idle} {
		ch <- d
	}
}

func (c *gpuDescs) collect(gpus []*proto.Gpu, gauge, counter func(*prometheus.Desc, float64, ...string)) {
	for _, g := range gpus {
		if g.Lacks != "" {
			continue
		}
		rank := strconv.Itoa(int(g.Rank))
		if g.Measured {
			gauge(c.busy, g.Busy, rank, g.Uuid)
			counter(c.idle, g.IdleData, rank, g.Uuid, "data")
			counter(c.idle, g.IdleOther, rank, g.Uuid, "other")
		}
		gauge(c.used, float64(g.MemoryUsed), rank, g.Uuid)
		gauge(c.memory, float64(g.Memory), rank, g.Uuid)
		gauge(c.received, float64(g.Received), rank, g.Uuid)
		gauge(c.transmitted, float64(g.Transmitted), rank, g.Uuid)
		gauge(c.clock, float64(g.Clock), rank, g.Uuid)
		gauge(c.mostClock, float64(g.MostClock), rank, g.Uuid)
		for _, reason := range g.Throttled {
			gauge(c.throttled, 1, rank, g.Uuid, reason)
		}
	}
}

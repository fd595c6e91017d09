package figures

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	pb "millrace/proto"
)

// Collector turns the figures of a status into metrics.
type Collector struct {
	waited, waits, longest, connected, buffered, waiting *prometheus.Desc
	fill, imbalance                                      *prometheus.Desc
	seconds, bytes, tokens                               *prometheus.Desc
	supplied, served                                     *prometheus.Desc
	cpu, wall, processors                                *prometheus.Desc
	store                                                []storeMetric
}

// NewCollector returns a collector whose descriptions d makes.
func NewCollector(d func(name, help string, labels ...string) *prometheus.Desc) *Collector {
	return &Collector{
		waited:    d("trainer_wait_seconds_total", "Time that a rank's trainer waited for batches.", "rank"),
		waits:     d("trainer_long_waits_total", "Waits of a rank's trainer of more than a second.", "rank"),
		longest:   d("trainer_longest_wait_seconds", "The longest of these waits.", "rank"),
		connected: d("trainer_seconds_total", "Time since a rank's first commit.", "rank"),
		buffered: d(
			"buffered_steps",
			"Steps whose tokens are on the rank's host and that it has yet to consume.",
			"rank",
		),
		waiting: d("trainer_waiting_seconds", "Length of the wait that is under way, and its cause.",
			"rank", "activity", "source", "role"),
		fill: d("fill", "Tokens of the newest sealed step by the room of its rows."),
		imbalance: d(
			"imbalance",
			"The most expensive rank of a step by the mean: predicted, or of reported times.",
			"kind",
		),
		seconds: d(
			"activity_seconds_total",
			"Time of an activity in one role, for a source.",
			"role",
			"source",
			"activity",
		),
		bytes:  d("read_bytes_total", "Bytes that a role read from data files.", "role", "source"),
		tokens: d("made_tokens_total", "Tokens that a role made of records.", "role", "source"),
		supplied: d(
			"supplied_bytes_total",
			"Bytes of tokens that came to a sidecar, by who sent them: loaders, or the constructors of other hosts.",
			"role",
			"from",
		),
		served:     d("served_bytes_total", "Bytes of tokens that a sidecar sent to its peers on other hosts.", "role"),
		store:      storeMetrics(d),
		cpu:        d("role_cpu_seconds_total", "Processor time of a role.", "role"),
		wall:       d("role_seconds_total", "Time since a role's process started.", "role"),
		processors: d("role_processors", "Mean number of processors that a role kept busy in the last minute.", "role"),
	}
}

// Describe sends the descriptions.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.waited, c.waits, c.longest, c.connected, c.buffered, c.waiting, c.fill,
		c.imbalance, c.seconds, c.bytes, c.tokens, c.supplied, c.served, c.cpu, c.wall, c.processors} {
		ch <- d
	}
	for _, m := range c.store {
		ch <- m.desc
	}
}

// Collect passes each metric of the figures to gauge or counter.
func (c *Collector) Collect(d *pb.Delivery, gauge, counter func(*prometheus.Desc, float64, ...string)) {
	for _, k := range d.GetRanks() {
		rank := fmt.Sprint(k.Rank)
		counter(c.waited, k.Waited, rank)
		counter(c.waits, float64(k.Waits), rank)
		gauge(c.longest, k.Longest, rank)
		counter(c.connected, k.Connected, rank)
		gauge(c.buffered, float64(k.Buffered), rank)
		if w := k.Waiting; w != nil {
			gauge(c.waiting, k.WaitingFor, rank, w.Kind, w.Source, w.Role)
		}
	}
	if d.GetFill() > 0 {
		gauge(c.fill, d.Fill)
	}
	if d.GetPredicted() > 0 {
		gauge(c.imbalance, d.Predicted, "predicted")
	}
	if d.GetReported() > 0 {
		gauge(c.imbalance, d.Reported, "reported")
	}
	for _, r := range d.GetRoles() {
		counter(c.cpu, r.Cpu, r.Role)
		counter(c.wall, r.Wall, r.Role)
		gauge(c.processors, r.Processors, r.Role)
		if s := r.Supply; s != nil {
			counter(c.supplied, float64(s.FromLoaders), r.Role, "loaders")
			counter(c.supplied, float64(s.FromConstructors), r.Role, "constructors")
			counter(c.served, float64(s.ToPeers), r.Role)
		}
		for _, s := range r.Sources {
			for i, kind := range s.Kind {
				counter(c.seconds, s.Seconds[i], r.Role, s.Source, kind)
			}
			if s.Bytes > 0 {
				counter(c.bytes, float64(s.Bytes), r.Role, s.Source)
			}
			if s.Tokens > 0 {
				counter(c.tokens, float64(s.Tokens), r.Role, s.Source)
			}
			for _, m := range c.store {
				if s.Fetches != nil {
					counter(m.desc, float64(m.of(s.Fetches)), r.Role, s.Source)
				}
			}
		}
	}
}

// storeMetric is a counter of a source in an object store.
type storeMetric struct {
	desc *prometheus.Desc
	of   func(*pb.Fetches) int64
}

func storeMetrics(d func(name, help string, labels ...string) *prometheus.Desc) (out []storeMetric) {
	for _, m := range []struct {
		name, help string
		of         func(*pb.Fetches) int64
	}{
		{"fetched_bytes", "Bytes that came from the source's store.", (*pb.Fetches).GetFetched},
		{"used_bytes", "Bytes that readers took, from the store or from the cache of files.", (*pb.Fetches).GetUsed},
		{"requests", "Requests of ranges, with retries and hedges.", (*pb.Fetches).GetRequests},
		{"retries", "Requests that were tried again.", (*pb.Fetches).GetRetries},
		{"hedges", "Second requests beside slow ones.", (*pb.Fetches).GetHedges},
		{"cache_hits", "Blocks that a role read from the cache of files.", (*pb.Fetches).GetHits},
		{"cache_misses", "Blocks that the cache of files lacked.", (*pb.Fetches).GetMisses},
	} {
		out = append(out, storeMetric{d("store_"+m.name+"_total", m.help, "role", "source"), m.of})
	}
	return out
}

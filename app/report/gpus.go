package report

import (
	"fmt"
	"io"
	"strings"

	"millrace/proto"
)

// GPU describes the GPU of a rank.
type GPU struct {
	Rank        uint32   `json:"rank"`
	Lacks       string   `json:"lacks"` // why the GPU is unknown; the fields below are then empty
	Index       uint32   `json:"index"` // as nvidia-smi counts
	UUID        string   `json:"uuid"`
	Name        string   `json:"name"`
	CPUs        string   `json:"cpus"` // near the GPU, such as 0-15,32
	Busy        *float64 `json:"busy"` // part of the time; null: the driver does not measure it
	MemoryUsed  uint64   `json:"memory_used"`
	Memory      uint64   `json:"memory"`
	Received    uint64   `json:"pcie_received"` // bytes a second
	Transmitted uint64   `json:"pcie_transmitted"`
	Clock       uint32   `json:"clock_mhz"`
	MostClock   uint32   `json:"most_clock_mhz"`
	Throttled   []string `json:"throttled"`
	IdleData    float64  `json:"idle_data_seconds"`  // idle while the trainer waited for data, at most
	IdleOther   float64  `json:"idle_other_seconds"` // idle at other times
}

func newGPU(g *proto.Gpu) GPU {
	out := GPU{Rank: g.Rank, Lacks: g.Lacks, Index: g.Index, UUID: g.Uuid, Name: g.Name, CPUs: g.Near,
		MemoryUsed: g.MemoryUsed, Memory: g.Memory, Received: g.Received, Transmitted: g.Transmitted, Clock: g.Clock,
		MostClock: g.MostClock, Throttled: append([]string{}, g.Throttled...), IdleData: g.IdleData,
		IdleOther: g.IdleOther}
	if g.Measured {
		out.Busy = &g.Busy
	}
	return out
}

// PrintGPUs writes a line for each rank's GPU.
func (v *Status) PrintGPUs(w io.Writer) error {
	if len(v.GPUs) == 0 {
		return nil
	}
	rows := []string{Row("\nRANK", "GPU", "BUSY", "IDLE FOR DATA", "IDLE ELSE", "MEMORY", "PCIE IN", "PCIE OUT",
		"CLOCK", "THROTTLED", "CPUS NEAR")}
	for _, g := range v.GPUs {
		if g.Lacks != "" {
			rows = append(rows, Row(g.Rank, "unknown: "+g.Lacks))
			continue
		}
		busy := "-"
		if g.Busy != nil {
			busy = Percent(*g.Busy)
		}
		throttled := "-"
		if len(g.Throttled) > 0 {
			throttled = strings.Join(g.Throttled, ", ")
		}
		rows = append(rows, Row(g.Rank, fmt.Sprintf("%d %s", g.Index, g.Name), busy, seconds(g.IdleData),
			seconds(g.IdleOther), fmt.Sprintf("%.1f/%.1f GiB", gibibytes(g.MemoryUsed), gibibytes(g.Memory)),
			rate(g.Received), rate(g.Transmitted), fmt.Sprintf("%d/%d MHz", g.Clock, g.MostClock), throttled, g.CPUs))
	}
	return Table(w, rows...)
}

func seconds(s float64) string { return fmt.Sprintf("%.0f s", s) }

func gibibytes(n uint64) float64 { return float64(n) / (1 << 30) }

func rate(bytes uint64) string { return fmt.Sprintf("%.1f MB/s", float64(bytes)/1e6) }

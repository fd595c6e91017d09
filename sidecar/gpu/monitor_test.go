//go:build cgo

package gpu

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"golang.org/x/sys/unix"

	"millrace"
	"millrace/internal/needs"
	"millrace/internal/seam"
	"millrace/sidecar"
)

// dgx returns NVIDIA's mock of a DGX A100, with the calls that it lacks. busy is the utilisation of every GPU in
// percent.
func dgx(busy *uint32, throttled *uint64) *dgxa100.Server {
	server := dgxa100.New()
	for i, d := range server.Devices {
		d := d.(*dgxa100.Device)
		d.MemoryInfo.Used = uint64(i) << 30
		d.GetCpuAffinityFunc = func(int) ([]uint, nvml.Return) { return []uint{1 << (i % 2)}, nvml.SUCCESS }
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{Gpu: *busy}, nvml.SUCCESS
		}
		d.GetPcieThroughputFunc = func(c nvml.PcieUtilCounter) (uint32, nvml.Return) {
			return 1000 * (1 + uint32(c)), nvml.SUCCESS
		}
		d.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 1200, nvml.SUCCESS }
		d.GetMaxClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 1410, nvml.SUCCESS }
		d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return *throttled, nvml.SUCCESS }
	}
	return server
}

// divide gives a GPU one MIG instance, in the second of seven places.
func divide(d *dgxa100.Device, uuid string) {
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i != 1 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetUUIDFunc:       func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
			GetNameFunc:       func() (string, nvml.Return) { return "MIG 1g.5gb", nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 5 << 30}, nvml.SUCCESS },
		}, nvml.SUCCESS
	}
}

func mustOpen(t *testing.T, server nvml.Interface) Library {
	t.Helper()
	l, err := open(server)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestALibraryDescribesAndSamples(t *testing.T) {
	busy, throttled := uint32(40), uint64(nvml.ClocksThrottleReasonGpuIdle|nvml.ClocksThrottleReasonSwThermalSlowdown)
	server := dgx(&busy, &throttled)
	divide(server.Devices[7].(*dgxa100.Device), "MIG-1")
	l := mustOpen(t, server)
	devices, err := l.Devices()
	if err != nil || len(devices) != 8 {
		t.Fatalf("%d devices, %v", len(devices), err)
	}
	d := devices[3]
	if d.Index != 3 || d.Name != "Mock NVIDIA A100-SXM4-40GB" || !slices.Equal(d.CPUs, []int{1}) {
		t.Errorf("device 3: %+v", d)
	}
	s, err := l.Sample(d.UUID)
	if err != nil || !s.Measured || s.Busy != 0.4 || s.MemoryUsed != 3<<30 || s.Clock != 1200 || s.MostClock != 1410 ||
		s.Transmitted != 1e6 || s.Received != 2e6 || !slices.Equal(s.Throttled, []string{"heat"}) {
		t.Errorf("sample: %+v, %v", s, err)
	}
	parts := devices[7].Parts
	if len(parts) != 1 || parts[0].UUID != "MIG-1" || parts[0].Index != 7 {
		t.Fatalf("MIG instances: %+v", parts)
	}
	if s, err = l.Sample("MIG-1"); err != nil || s.Measured || s.Memory != 5<<30 || s.Clock != 1200 {
		t.Errorf("sample of a MIG instance: %+v, %v", s, err)
	}
}

// TestWithoutADriver: this machine's real NVML, or none: the monitor returns and says so once.
func TestWithoutADriver(t *testing.T) {
	needs.Require(t, "no-gpu-driver")
	var out bytes.Buffer
	m := New(Config{Open: Open, Clock: seam.System{}, Log: slog.New(slog.NewTextHandler(&out, nil)),
		Report: func([]Figures) { t.Error("figures without a driver") }})
	m.Arrived(0, 0, sidecar.Seat{})
	m.Run(t.Context())
	if n := strings.Count(out.String(), "GPUs are not watched"); n != 1 ||
		!strings.Contains(out.String(), "no NVIDIA driver") {
		t.Errorf("log: %s", &out)
	}
}

// watched runs a monitor for a time on a mock host, in which play acts as the trainer of rank 5 each second.
func watched(
	t *testing.T,
	server nvml.Interface,
	long time.Duration,
	play func(m *Monitor, second int),
) (last []Figures, log string) {
	t.Helper()
	var out bytes.Buffer
	// The process of the test is not moved: its CPUs are those that it has.
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{Open: func() (Library, error) { return open(server) }, Clock: seam.System{},
			Log: slog.New(slog.NewTextHandler(&out, nil)), Report: func(f []Figures) { last = f }})
		m.Arrived(5, 1, sidecar.Seat{})
		go m.Run(t.Context())
		time.Sleep(every / 2)
		for second := range int(long / time.Second) {
			play(m, second)
			time.Sleep(time.Second)
		}
		synctest.Wait()
	})
	return last, out.String()
}

// TestIdleTimeIsSplit: a GPU that is idle for 60 % of the time, of which its trainer waits for data half, and tells so
// at each step of 4 seconds.
func TestIdleTimeIsSplit(t *testing.T) {
	busy, throttled := uint32(40), uint64(0)
	server := dgx(&busy, &throttled)
	keepCPUs(server)
	figures, log := watched(t, server, 4*time.Minute, func(m *Monitor, second int) {
		if second%4 == 0 {
			m.Waited(5, time.Duration(second)*300*time.Millisecond)
		}
	})
	if len(figures) != 1 || figures[0].Rank != 5 || figures[0].Device.Index != 1 || figures[0].Sample.Busy != 0.4 {
		t.Fatalf("figures: %+v", figures)
	}
	f := figures[0]
	if math.Abs(f.IdleData-72) > 4 || math.Abs(f.IdleOther-72) > 4 {
		t.Errorf("idle for data %.1f s, else %.1f s; want 72 s each", f.IdleData, f.IdleOther)
	}
	if n := strings.Count(log, "a GPU idles because its trainer waits for data"); n != 1 {
		t.Errorf("%d warnings: %s", n, log)
	}
}

// TestABusyGPUWaitsForNothing: the trainer waits while earlier kernels keep the GPU busy.
func TestABusyGPUWaitsForNothing(t *testing.T) {
	busy, throttled := uint32(100), uint64(nvml.ClocksThrottleReasonHwThermalSlowdown)
	server := dgx(&busy, &throttled)
	keepCPUs(server)
	figures, log := watched(t, server, 2*time.Minute, func(m *Monitor, second int) {
		m.Waited(5, time.Duration(second)*500*time.Millisecond)
	})
	if f := figures[0]; f.IdleData != 0 || f.IdleOther != 0 {
		t.Errorf("idle for data %.1f s, else %.1f s", f.IdleData, f.IdleOther)
	}
	if strings.Contains(log, "idles") || strings.Count(log, "runs slower than it could") != 1 {
		t.Errorf("log: %s", log)
	}
}

// keepCPUs lets the mock's driver name no CPUs, so that a test does not move its own process.
func keepCPUs(server *dgxa100.Server) {
	for _, d := range server.Devices {
		d.(*dgxa100.Device).GetCpuAffinityFunc = func(int) ([]uint, nvml.Return) {
			return nil, nvml.ERROR_NOT_SUPPORTED
		}
	}
}

// TestARankWithoutAGPU: the figures say why.
func TestARankWithoutAGPU(t *testing.T) {
	busy, throttled := uint32(0), uint64(0)
	figures, _ := watched(t, dgx(&busy, &throttled), 3*time.Second, func(m *Monitor, second int) {
		if hidden := ""; second == 0 {
			m.Arrived(5, 1, sidecar.Seat{Visible: &hidden})
		}
	})
	if len(figures) != 1 || !strings.Contains(figures[0].Lacks, "CUDA_VISIBLE_DEVICES") {
		t.Errorf("figures: %+v", figures)
	}
}

// TestEveryThreadIsPinned runs in a process of its own, because it moves the process.
func TestEveryThreadIsPinned(t *testing.T) {
	const mark = "MILLRACE_TEST_PIN"
	allowed, err := allowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(mark) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestEveryThreadIsPinned$", "-test.v")
		c.Env = append(os.Environ(), mark+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	busy, throttled := uint32(0), uint64(0)
	server := dgx(&busy, &throttled)
	last := allowed[len(allowed)-1]
	for _, d := range server.Devices {
		d.(*dgxa100.Device).GetCpuAffinityFunc = func(int) ([]uint, nvml.Return) {
			words := make([]uint, mostCPUs/64)
			words[last/64] = 1 << (last % 64)
			return words, nvml.SUCCESS
		}
	}
	m := New(Config{Clock: seam.System{}, Log: slog.Default(), Report: func([]Figures) {}})
	m.Arrived(millrace.Rank(0), 0, sidecar.Seat{})
	library := mustOpen(t, server)
	devices, err := library.Devices()
	if err != nil {
		t.Fatal(err)
	}
	m.look(&host{library: library, devices: devices, allowed: allowed, log: slog.Default()}, time.Second)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/status")
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
		if list, _, _ := strings.Cut(rest, "\n"); list != ranges([]int{last}) {
			t.Errorf("thread %s may run on CPUs %s, want %d", thread.Name(), list, last)
		}
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil || set.Count() != 1 {
		t.Errorf("%d CPUs, %v", set.Count(), err)
	}
}

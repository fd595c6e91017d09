//go:build cgo

package gpu

import (
	"fmt"
	"math/bits"
	"runtime"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Open loads NVML and connects to the driver. The caller closes the library.
func Open() (Library, error) { return open(nvml.New()) }

func open(api nvml.Interface) (Library, error) {
	switch result := api.Init(); result {
	case nvml.SUCCESS:
		return &library{api: api, handles: map[string]handle{}}, nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("the host has no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded")
	default:
		return nil, fmt.Errorf("start NVML: error %d", result) // its text would need a symbol of the library
	}
}

// library implements Library by NVML.
type library struct {
	api     nvml.Interface
	handles map[string]handle
}

// handle has the driver's handles of a device. whole is the GPU itself, for the values that a MIG instance lacks.
type handle struct {
	device, whole nvml.Device
	isPart        bool
}

// Devices implements Library.
func (l *library) Devices() ([]Device, error) {
	n, result := l.api.DeviceGetCount()
	if result != nvml.SUCCESS {
		return nil, fmt.Errorf("count the GPUs: %s", result)
	}
	out := make([]Device, 0, n)
	for i := range n {
		device, result := l.api.DeviceGetHandleByIndex(i)
		if result != nvml.SUCCESS {
			return nil, fmt.Errorf("open GPU %d: %s", i, result)
		}
		d, err := l.describe(i, handle{device: device, whole: device})
		if err != nil {
			return nil, err
		}
		if d.Parts, err = l.parts(d, device); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (l *library) describe(index int, h handle) (Device, error) {
	uuid, result := h.device.GetUUID()
	if result != nvml.SUCCESS {
		return Device{}, fmt.Errorf("read the UUID of GPU %d: %s", index, result)
	}
	l.handles[uuid] = h
	d := Device{Index: index, UUID: uuid, CPUs: cpusNear(h.whole)}
	d.Name, _ = h.device.GetName()
	return d, nil
}

// parts lists the MIG instances of a GPU.
func (l *library) parts(of Device, whole nvml.Device) (out []Device, err error) {
	if mode, _, result := whole.GetMigMode(); result != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil, nil // most GPUs have no MIG, and old drivers no such call
	}
	most, result := whole.GetMaxMigDeviceCount()
	if result != nvml.SUCCESS {
		return nil, fmt.Errorf("count the MIG instances of GPU %d: %s", of.Index, result)
	}
	for i := range most {
		part, result := whole.GetMigDeviceHandleByIndex(i)
		if result == nvml.ERROR_NOT_FOUND || result == nvml.ERROR_INVALID_ARGUMENT {
			continue // the place is empty
		}
		if result != nvml.SUCCESS {
			return nil, fmt.Errorf("open MIG instance %d of GPU %d: %s", i, of.Index, result)
		}
		d, err := l.describe(of.Index, handle{device: part, whole: whole, isPart: true})
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// cpusNear returns the CPUs that the driver names for a GPU, nil if it names none.
func cpusNear(device nvml.Device) (out []int) {
	words, result := device.GetCpuAffinity(max(runtime.NumCPU(), mostCPUs))
	if result != nvml.SUCCESS {
		return nil
	}
	for i, word := range words {
		for ; word != 0; word &= word - 1 {
			out = append(out, i*bits.UintSize+bits.TrailingZeros(word))
		}
	}
	return out
}

// Sample implements Library.
func (l *library) Sample(uuid string) (s Sample, err error) {
	h, ok := l.handles[uuid]
	if !ok {
		return s, fmt.Errorf("sample GPU %s: the driver did not list it", uuid)
	}
	memory, result := h.device.GetMemoryInfo()
	if result != nvml.SUCCESS {
		return s, fmt.Errorf("sample GPU %s: %s", uuid, result)
	}
	s.MemoryUsed, s.Memory = memory.Used, memory.Total
	if !h.isPart {
		used, result := h.device.GetUtilizationRates()
		s.Measured, s.Busy = result == nvml.SUCCESS, min(float64(used.Gpu)/100, 1)
	}
	s.Received = throughput(h.whole, nvml.PCIE_UTIL_RX_BYTES)
	s.Transmitted = throughput(h.whole, nvml.PCIE_UTIL_TX_BYTES)
	if clock, result := h.whole.GetClockInfo(nvml.CLOCK_SM); result == nvml.SUCCESS {
		s.Clock = clock
	}
	if clock, result := h.whole.GetMaxClockInfo(nvml.CLOCK_SM); result == nvml.SUCCESS {
		s.MostClock = clock
	}
	// The newer name of this call is missing in drivers before 535, and a missing symbol would end the process.
	if reasons, result := h.whole.GetCurrentClocksThrottleReasons(); result == nvml.SUCCESS {
		s.Throttled = throttles(reasons)
	}
	return s, nil
}

// throughput returns the PCIe traffic of one direction in bytes a second. The driver measures it for 20 ms.
func throughput(device nvml.Device, direction nvml.PcieUtilCounter) uint64 {
	kilobytes, result := device.GetPcieThroughput(direction)
	if result != nvml.SUCCESS {
		return 0
	}
	return uint64(kilobytes) * 1000
}

// throttles names the reasons for which a GPU runs below its clocks. To have nothing to do is no such reason, and
// neither is a limit that a user has set.
func throttles(reasons uint64) (out []string) {
	for _, r := range []struct {
		bit  uint64
		name string
	}{
		{nvml.ClocksThrottleReasonSwPowerCap, powerCap},
		{nvml.ClocksThrottleReasonHwSlowdown, "hardware slowdown"},
		{nvml.ClocksThrottleReasonSwThermalSlowdown, "heat"},
		{nvml.ClocksThrottleReasonHwThermalSlowdown, "heat (hardware)"},
		{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
		{nvml.ClocksThrottleReasonSyncBoost, syncBoost},
	} {
		if reasons&r.bit != 0 {
			out = append(out, r.name)
		}
	}
	return out
}

// Close implements Library.
func (l *library) Close() { l.api.Shutdown() }

// Package gpu watches the GPUs of a host's trainer ranks through NVML, the management library of NVIDIA's driver.
//
// A [Monitor] finds the GPU of each rank, keeps this process on the CPUs near those GPUs, and samples utilisation,
// memory, PCIe traffic, clocks and throttling once a second. It splits the idle time of each GPU into time in which
// the rank's trainer waited for data, and other time. No batch depends on any of it.
//
// A binary that was built without cgo has no NVML. Without NVML or without a driver, a Monitor logs that once and stays
// idle.
package gpu

// Device is a GPU of the host, or a MIG instance of one.
type Device struct {
	Index int // of the GPU, as nvidia-smi numbers it
	UUID  string
	Name  string
	CPUs  []int    // near the GPU, in ascending order; empty: unknown
	Parts []Device // the GPU's MIG instances, in the driver's order
}

// Sample has the measurements of a device at one moment. A value of 0 is also given if the driver cannot measure it.
type Sample struct {
	Measured              bool    // Busy is known; the driver does not measure it for MIG instances
	Busy                  float64 // part of the last sampling period in which a kernel ran, from 0 to 1
	MemoryUsed, Memory    uint64  // bytes
	Received, Transmitted uint64  // bytes a second over PCIe, as the GPU sees it
	Clock, MostClock      uint32  // of the multiprocessors now, and the highest possible, in MHz
	Throttled             []string
}

// Library reads the host's GPUs. Calls do not overlap.
type Library interface {
	// Devices lists the GPUs in the order of their index.
	Devices() ([]Device, error)
	// Sample measures a GPU or a MIG instance.
	Sample(uuid string) (Sample, error)
	// Close ends the use of the driver.
	Close()
}

// The reasons of throttling that belong to normal work at full load.
const (
	powerCap  = "power cap"
	syncBoost = "sync boost"
)

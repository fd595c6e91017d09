package gpu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mostCPUs is the number of CPUs that the kernel's interface of unix.CPUSet holds.
const mostCPUs = 1024

// allowedCPUs returns the CPUs on which this process may run.
func allowedCPUs() (out []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPUs of this process: %w", err)
	}
	for cpu := range mostCPUs {
		if set.IsSet(cpu) {
			out = append(out, cpu)
		}
	}
	return out, nil
}

// nearest returns the allowed CPUs that are near one of the devices. It returns all allowed CPUs if none of them is
// near, or if the CPUs near a device are unknown.
func nearest(allowed []int, devices []Device) []int {
	near := map[int]bool{}
	for _, d := range devices {
		if len(d.CPUs) == 0 {
			return allowed
		}
		for _, cpu := range d.CPUs {
			near[cpu] = true
		}
	}
	out := slices.DeleteFunc(slices.Clone(allowed), func(cpu int) bool { return !near[cpu] })
	if len(out) == 0 {
		return allowed
	}
	return out
}

// pin keeps every thread of this process on the given CPUs. Threads that start later inherit them from the thread that
// starts them; pin therefore looks again until it finds no new thread.
func pin(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	done := map[string]bool{}
	for {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list the threads of this process: %w", err)
		}
		found := false
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil || done[t.Name()] {
				continue
			}
			done[t.Name()], found = true, true
			if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
				return fmt.Errorf("keep this process on CPUs %s: %w", ranges(cpus), err)
			}
		}
		if !found {
			return nil
		}
	}
}

// ranges writes ascending CPU numbers as the kernel does, such as 0-15,32.
func ranges(cpus []int) string {
	var out []string
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		text := strconv.Itoa(cpus[i])
		if end > i {
			text += "-" + strconv.Itoa(cpus[end])
		}
		out = append(out, text)
		i = end + 1
	}
	return strings.Join(out, ",")
}

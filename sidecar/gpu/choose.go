package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/sidecar"
)

// choose returns the device of the rank behind socket number, among the host's GPUs.
//
// CUDA_VISIBLE_DEVICES of the trainer limits and orders the devices. Among those, the trainer's current device counts,
// then the only device, then LOCAL_RANK, then the number of the socket.
func choose(devices []Device, at sidecar.Seat, number int) (Device, error) {
	visible := undivided(devices)
	if at.Visible != nil {
		visible = visibleOf(devices, *at.Visible)
	}
	index := number
	switch {
	case len(visible) == 0:
		return Device{}, fmt.Errorf("CUDA_VISIBLE_DEVICES of its trainer leaves no GPU")
	case at.Device != nil:
		index = *at.Device
	case len(visible) == 1:
		index = 0
	case at.LocalRank != nil:
		index = *at.LocalRank
	}
	if index < 0 || index >= len(visible) {
		return Device{}, fmt.Errorf("it would use GPU %d of %d", index, len(visible))
	}
	return visible[index], nil
}

// visibleOf returns the devices that a value of CUDA_VISIBLE_DEVICES selects, in its order. As in CUDA, the first entry
// that names no device ends the list, and a device that is named twice makes the whole list invalid.
func visibleOf(devices []Device, value string) (out []Device) {
	for entry := range strings.SplitSeq(value, ",") {
		d, ok := find(devices, strings.TrimSpace(entry))
		if !ok {
			return out
		}
		if slices.ContainsFunc(out, func(o Device) bool { return o.UUID == d.UUID }) {
			return nil
		}
		out = append(out, d)
	}
	return out
}

// find returns the device of one entry: an index, the UUID of a GPU or its beginning, or the UUID of a MIG instance.
func find(devices []Device, entry string) (found Device, ok bool) {
	if index, err := strconv.Atoi(entry); err == nil {
		if i := slices.IndexFunc(devices, func(d Device) bool { return d.Index == index }); i >= 0 {
			return undivided(devices)[i], true
		}
		return Device{}, false
	}
	if len(entry) <= len("GPU-") {
		return Device{}, false
	}
	matches := 0
	for _, d := range devices {
		for _, candidate := range append([]Device{d}, d.Parts...) {
			if strings.HasPrefix(strings.ToLower(candidate.UUID), strings.ToLower(entry)) {
				found, matches = candidate, matches+1
			}
		}
	}
	return found, matches == 1
}

// undivided returns the devices that CUDA lists by itself: each GPU, or the first instance of a divided GPU.
func undivided(devices []Device) []Device {
	out := slices.Clone(devices)
	for i, d := range out {
		if len(d.Parts) > 0 {
			out[i] = d.Parts[0]
		}
	}
	return out
}

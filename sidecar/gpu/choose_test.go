package gpu

import (
	"slices"
	"testing"

	"millrace/sidecar"
)

// TestChoose: the device of a rank follows CUDA's rules for CUDA_VISIBLE_DEVICES, then the trainer's words.
func TestChoose(t *testing.T) {
	devices := []Device{
		{Index: 0, UUID: "GPU-aa1"}, {Index: 1, UUID: "GPU-aa2"}, {Index: 2, UUID: "GPU-c3"},
		{Index: 3, UUID: "GPU-d4", Parts: []Device{
			{Index: 3, UUID: "MIG-e5"}, {Index: 3, UUID: "MIG-GPU-d4/2/0"},
		}},
	}
	type seat = sidecar.Seat
	text, number := func(s string) *string { return &s }, func(n int) *int { return &n }
	for name, c := range map[string]struct {
		seat   seat
		socket int
		want   string // UUID; empty: unknown
	}{
		"number of the socket":            {socket: 1, want: "GPU-aa2"},
		"LOCAL_RANK before the socket":    {seat: seat{LocalRank: number(2)}, socket: 1, want: "GPU-c3"},
		"device before LOCAL_RANK":        {seat: seat{LocalRank: number(2), Device: number(0)}, want: "GPU-aa1"},
		"only visible device":             {seat: seat{Visible: text("2"), LocalRank: number(5)}, want: "GPU-c3"},
		"order of the visible devices":    {seat: seat{Visible: text("2, 0"), LocalRank: number(1)}, want: "GPU-aa1"},
		"UUID":                            {seat: seat{Visible: text("GPU-c3")}, want: "GPU-c3"},
		"beginning of a UUID":             {seat: seat{Visible: text("gpu-c")}, want: "GPU-c3"},
		"beginning of two UUIDs":          {seat: seat{Visible: text("GPU-aa")}},
		"MIG instance":                    {seat: seat{Visible: text("MIG-e5")}, want: "MIG-e5"},
		"MIG instance, older form":        {seat: seat{Visible: text("MIG-GPU-d4/2/0")}, want: "MIG-GPU-d4/2/0"},
		"first instance of a divided GPU": {seat: seat{LocalRank: number(3)}, want: "MIG-e5"},
		"divided GPU by its index":        {seat: seat{Visible: text("3")}, want: "MIG-e5"},
		"a wrong entry ends the list":     {seat: seat{Visible: text("1,9,0"), LocalRank: number(1)}, want: "GPU-aa2"},
		"minus one hides all":             {seat: seat{Visible: text("-1")}},
		"empty hides all":                 {seat: seat{Visible: text("")}},
		"a device twice hides all":        {seat: seat{Visible: text("0,0")}},
		"beyond the last device":          {seat: seat{LocalRank: number(4)}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := choose(devices, c.seat, c.socket)
			if d.UUID != c.want || (err == nil) != (c.want != "") {
				t.Errorf("device %q, error %v; want %q", d.UUID, err, c.want)
			}
		})
	}
}

// TestNearest: this process never leaves its allowed CPUs, and unknown CPUs change nothing.
func TestNearest(t *testing.T) {
	allowed := []int{0, 1, 2, 3, 8, 9}
	for name, c := range map[string]struct {
		devices []Device
		want    []int
	}{
		"one node":                 {[]Device{{CPUs: []int{0, 1, 4, 5}}}, []int{0, 1}},
		"two nodes":                {[]Device{{CPUs: []int{0, 1}}, {CPUs: []int{8, 9}}}, []int{0, 1, 8, 9}},
		"near CPUs are forbidden":  {[]Device{{CPUs: []int{64, 65}}}, allowed},
		"one device has no CPUs":   {[]Device{{CPUs: []int{0}}, {}}, allowed},
		"no CPU outside of cpuset": {[]Device{{CPUs: []int{2, 3, 4, 5, 6, 7, 8}}}, []int{2, 3, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nearest(allowed, c.devices); !slices.Equal(got, c.want) {
				t.Errorf("CPUs %v, want %v", got, c.want)
			}
		})
	}
	if got := ranges([]int{0, 1, 2, 8, 10, 11}); got != "0-2,8,10-11" {
		t.Errorf("ranges: %s", got)
	}
}

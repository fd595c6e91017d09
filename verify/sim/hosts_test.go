package sim

import (
	"maps"
	"testing"
	"testing/synctest"
)

// TestHostsDeliverTheBatchesOfOneHost: sidecars that get parts of plans deliver together the batches that one sidecar
// delivers of whole plans, under every layout and topology of the workloads.
func TestHostsDeliverTheBatchesOfOneHost(t *testing.T) {
	dir := t.TempDir()
	several := 0
	for number := range workloads {
		load := newWorkload(t, dir, number)
		if load.ranks == 1 || number == manySources {
			continue
		}
		several++
		calm := &script{Workload: number, Phases: []phase{{Start: "fresh", Until: int(load.steps)}}}
		var one *world
		for _, hosts := range []int{1, 2, load.ranks} {
			load.hosts = hosts
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(load, calm, nil)
				if o := w.live(); o.Violated != "" {
					t.Fatalf("workload %d, %d hosts: %s: %s", number, hosts, o.Violated, o.Detail)
				}
				if one == nil {
					one = w
				}
				for r, x := range w.trainers {
					if !maps.Equal(x.got, one.trainers[r].got) {
						t.Errorf("workload %d: rank %d gets other batches from %d hosts than from one", number, r,
							hosts)
					}
					if isPart := hosts == load.ranks && load.axes.DP() > 1; isPart && x.parts < len(x.got) {
						t.Errorf("workload %d: %d of %d plans of rank %d came as parts", number, x.parts, len(x.got), r)
					}
				}
				loaded, fed := int64(0), int64(0)
				for _, h := range w.hosts {
					s := h.link.Supply()
					loaded, fed = loaded+s.FromLoaders, fed+s.FromConstructors
				}
				// With a rank a host, the ranks that share a data-parallel rank are on different hosts. The groups may
				// be told after the first fetches.
				if most := int64(load.ranks/load.axes.DP() - 1); hosts == load.ranks && fed < most*loaded/2 {
					t.Errorf("workload %d: loaders sent %d bytes, constructors %d, want about %d times as much",
						number, loaded, fed, most)
				}
			})
		}
	}
	if several < 10 {
		t.Errorf("%d workloads have several ranks", several)
	}
}

package checkpoint

import (
	"path/filepath"
	"testing"

	"millrace/checkpoint/disk/disktest"
)

// TestCompactGivesRoomBack: after Compact, truncated records and dropped plans take no room.
func TestCompactGivesRoomBack(t *testing.T) {
	disk := disktest.NewMemory()
	size := func() (total int64) {
		names, err := disk.FS().List(memDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			info, err := disk.FS().Stat(disk.FS().PathJoin(memDir, name))
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
		return total
	}
	s := mustOpen(t, disk)
	steps(t, s, 1, 200, 20_000)
	full := size()
	if err := s.SaveSnapshot(200, 200, []byte("state")); err != nil {
		t.Fatal(err)
	}
	if err := s.Truncate(201); err != nil {
		t.Fatal(err)
	}
	if err := s.DropPlans("train", 201); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s) // while the store is open, its logs are kept for reuse
	s = mustOpen(t, disk)
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := verified(t, s); r.Entries != 200 || r.Records != 0 || r.Plans != 0 {
		t.Errorf("left over: %+v", r)
	}
	mustClose(t, s)
	if after := size(); after > full/20 {
		t.Errorf("%d bytes of %d are still taken", after, full)
	}
}

func TestRoom(t *testing.T) {
	free := uint64(7)
	s := mustOpen(t, disktest.NewRoomy(func() (uint64, uint64) { return free, 100 }))
	defer mustClose(t, s)
	for _, free = range []uint64{7, 3} {
		if left, total, err := s.Room(); err != nil || left != free || total != 100 {
			t.Errorf("room %d of %d: %v", left, total, err)
		}
	}
	real, err := Open(Config{Dir: filepath.Join(t.TempDir(), "checkpoint")})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, real)
	if left, total, err := real.Room(); err != nil || left == 0 || left > total {
		t.Errorf("room %d of %d on this machine: %v", left, total, err)
	}
}

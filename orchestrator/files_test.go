package orchestrator

import (
	"fmt"
	"testing"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint/disk/disktest"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/proto"
)

// TestManyFilesStayOutOfSnapshots: the files of a source with many shards are in the ledger once, and snapshots stay
// small. A restart reads the same manifest, and does not write it again.
func TestManyFilesStayOutOfSnapshots(t *testing.T) {
	const shards = 300_000
	store := openStore(t, disktest.NewMemory())
	defer store.Close()
	cfg := plannedConfig(t, 2)
	p := newPlanned(t, cfg, store)
	name := cfg.Sources[0].Name
	m := &millrace.Manifest{Source: name, Format: "jsonl", Shuffle: millrace.Global, Fingerprint: millrace.Digest{1}}
	for i := range shards {
		file := fmt.Sprintf("%03d/part-%06d.jsonl", i/1000, i)
		m.Shards = append(m.Shards, millrace.Shard{Name: file, Path: "/data/web/" + file, Size: int64(i), Counted: true,
			Digest: millrace.Digest{byte(i), byte(i >> 8), byte(i >> 16), 9, 8, 7}, Count: uint64(i % 7)})
	}
	pinned := wire.ManifestToProto(m)
	if n := pbuf.Size(pinned); n > 48*shards {
		t.Errorf("a manifest has %d bytes a shard", n/shards)
	}
	p.commit([]facts.Fact{{Record: &proto.Record{Fact: &proto.Record_Pinned{Pinned: &proto.Pinned{Manifest: pinned}}}}})
	for range 2 {
		if err := p.o.snapshot(); err != nil {
			t.Fatal(err)
		}
		snap, ok, err := store.NewestSnapshot()
		if err != nil || !ok || len(snap.Body) > 100_000 {
			t.Fatalf("the snapshot has %d bytes: %v, %v", len(snap.Body), ok, err)
		}
		s, _, err := facts.Read(store, cfg.Stream, cfg.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if !pbuf.Equal(s.Manifests[name], p.o.m.s.Manifests[name]) {
			t.Fatal("the restored manifest is another")
		}
		entries, err := facts.FilesEntries(cfg.Stream, s.Manifests[name])
		if err != nil || entries != nil {
			t.Fatalf("%d parts would be written again: %v", len(entries), err)
		}
		got := wire.ManifestFromProto(s.Manifests[name])
		if len(got.Shards) != shards || got.Shards[shards-1] != m.Shards[shards-1] {
			t.Fatalf("%d shards, the last is %+v", len(got.Shards), got.Shards[len(got.Shards)-1])
		}
	}
	if left := problems(t, store); len(left) > 0 {
		t.Errorf("the store has problems: %q", left)
	}
}

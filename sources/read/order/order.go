package order

import (
	"millrace"
	"millrace/mixing"
)

// The labels of a source's permutation keys. Changing one changes the stream of every run.
const (
	keyGlobal = "global"
	keyShards = "shards"
	keyBlock  = "block"
)

// Seed selects a source's permutations. Together with the files' bytes it decides the source's stream.
type Seed struct {
	Run    uint64 // the run's seed
	Source string // the source's name
	Epochs uint32 // passes over the source; 0: endless
}

// globalKey selects the permutation of all records in one epoch.
func (s Seed) globalKey(e millrace.Epoch) mixing.Key {
	return mixing.DeriveKey(s.Run, mixing.Text(s.Source), mixing.Number(uint64(e)), mixing.Text(keyGlobal))
}

// shardKey selects the order of the shards in one epoch.
func (s Seed) shardKey(e millrace.Epoch) mixing.Key {
	return mixing.DeriveKey(s.Run, mixing.Text(s.Source), mixing.Number(uint64(e)), mixing.Text(keyShards))
}

// blockKey selects the permutation inside a block; shard is the index in the manifest.
func (s Seed) blockKey(e millrace.Epoch, shard, block uint32) mixing.Key {
	return mixing.DeriveKey(s.Run, mixing.Text(s.Source), mixing.Number(uint64(e)), mixing.Text(keyBlock),
		mixing.Number(uint64(shard)), mixing.Number(uint64(block)))
}

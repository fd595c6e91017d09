// Package tier fetches the tokens of a data-parallel rank once for all hosts that need them. In a run of several hosts,
// the orchestrator names the constructor of each rank: one of the sidecars whose ranks need its tokens. That sidecar
// asks the loaders. The others, its peers, ask it.
//
// A peer depends on no constructor. If the constructor refuses, is lost, is silent or is late, the peer asks the
// loaders at once, as a sidecar without a group does. Rows are the same from both.
package tier

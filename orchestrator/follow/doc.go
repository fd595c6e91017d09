// Package follow keeps copies of a run's journal on other hosts, and elects a candidate that has one.
//
// The leader sends each follower an image of its store, and then every batch that it commits. A follower writes both to
// a copy of its own and acknowledges them when they are synced. The lease keeps the list of the copies in step. The
// leader publishes nothing before every listed copy has it: it waits for a listed follower, or removes it from the list
// first. So every listed copy has all that was ever published, and only a candidate with a listed copy is elected.
//
// Each stream of a run has a journal, a list, a Leader and a Follower. One election decides for all: a candidate needs
// a listed copy of every journal.
//
//	leader.go    Leader: its followers, the list, the wait for acknowledgements
//	places.go    Places: which processes follow all streams of a leader
//	serve.go     one follower's stream, at the leader
//	queue.go     batches that wait for a slow follower, within a limit of bytes
//	follower.go  Follower: follows the leader of the moment until it is elected
//	session.go   one stream, at the follower
//	wire.go      batches as numbered pieces with checksums
package follow

// Package mailbox is the placer of an engine whose side is another program, such as the keeper of millrace.ray. The
// orchestrator writes its goal to etcd, and the engine reads it there and writes which processes exist.
//
//	millrace/RUN/desired   a placer.Desired as JSON; only the process that plans the run may change it
//	millrace/RUN/observed  a JSON list of placer.Instance, as the engine last wrote it
//
// Each file uses only later ones:
//
//	keep.go     Keep: the engine's side, as lines of JSON
//	mailbox.go  Placer
package mailbox

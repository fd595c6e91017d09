// Package heartbeat lets the processes of one host see within milliseconds that another is dead, stopped or stuck: each shares a page of
// memory on which a thread of its own counts beats and which says how far its work has come.
//
// What the kernel says of a process is looked at as well, where a beat is missing: that it was stopped or is ending is known at once, and
// so missing beats need not be judged hastily.
//
// The page lives in memory only (memfd); the path that names it is a symbolic link to the owner's descriptor in /proc. A page of a file
// on a disk would hold the beats up whenever the kernel writes it back, and a page of a dead process would be left behind.
package heartbeat

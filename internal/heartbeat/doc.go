// Package heartbeat detects within milliseconds that another process of the host is dead, stopped or stuck. Each
// process shares a page of memory. One of its threads counts beats on the page, and the page also counts its work.
//
// When a beat is missing, a watcher asks the kernel about the process. The kernel knows at once that a process was
// stopped or is ending. So a late beat alone needs no quick verdict.
//
// The page exists only in memory (memfd). Its path is a symbolic link to the owner's descriptor in /proc. A page in a
// file would delay the beats whenever the kernel writes it to disk, and would outlive its process.
package heartbeat

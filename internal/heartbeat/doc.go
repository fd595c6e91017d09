// Package heartbeat detects within milliseconds that another process of the host is dead, stopped or stuck. Each
// process shares a page of memory. One of its threads counts beats on the page, and the page also counts its work.
//
// If a beat is late, a watcher asks the kernel about the process. The kernel reports at once that a process was stopped
// or is ending. A late beat alone therefore leads to a verdict only after a longer time. A process whose threads wait
// for a processor is late, not silent.
//
// The page exists only in memory (memfd). Its path is a symbolic link to the owner's descriptor in /proc. A page in a
// file would delay the beats whenever the kernel writes it to disk, and would outlive its process.
//
// A process of another host sends beats instead: see [Wire]. Its kernel cannot be asked, so the allowances are wider.
package heartbeat

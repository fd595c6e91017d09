// Package budget bounds the memory of the feeds of one process, and the number of spans that they decode at a time.
//
// A [Budget] belongs to the process, a [Quota] to one feed. A quota counts bytes, and holds reservations: each lets
// the feed decode one span that no fetch waits for. No call blocks. A refused feed is woken when it may ask again.
package budget

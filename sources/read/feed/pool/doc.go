// Package pool runs the decoders that all feeds of a process share.
//
// A [Pool] has a fixed number of goroutines with one decoder each, for any number of feeds. A feed says when it may
// have work, and how urgent that is. A free decoder goes to the feed with the most urgent work.
package pool

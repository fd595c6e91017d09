// Package remote reads files of object stores: s3, gs, az, http and the Hugging Face hub.
//
// [Files] is a sources.FS whose paths are URLs. Paths without a scheme are files of the operating system. One version
// of an object is read from its opening on: every request names the version, and an object that was replaced is an
// error. [Host] has the means of a process: connections, the budget of retries, memory for read-ahead, and figures.
//
// A read is repeated here a few times within seconds. If the store still does not answer, the error wraps
// sources.ErrUnavailable, and the caller waits.
package remote

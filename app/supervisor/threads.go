package supervisor

import (
	"runtime"
	"sync"
)

// spareThreads is the number of threads that a supervisor makes ahead, beside one for each child.
const spareThreads = 16

// reserveThreads makes threads until the process has n that can be idle at once. Go keeps threads for ever, and
// ends the program if the host refuses a new one. So a supervisor with threads in reserve survives a shortage.
func reserveThreads(n int) {
	release := make(chan struct{})
	var locked, ended sync.WaitGroup
	locked.Add(n)
	for range n {
		ended.Go(func() { // until it is released, each has a thread for itself
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			<-release
		})
	}
	locked.Wait()
	close(release)
	ended.Wait()
}

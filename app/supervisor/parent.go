package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// parentEnv has the process id of the process for which `up` runs, for example of a notebook.
const parentEnv = "MILLRACE_PARENT"

// errParentEnded: the process of MILLRACE_PARENT has ended.
var errParentEnded = errors.New("the process that started it has ended")

// WithParent returns a context that ends with ctx, and when the process of MILLRACE_PARENT has ended. Without that
// variable, it ends with ctx alone. A pidfd watches the process: a pipe would stay open in the processes that it has
// forked, and a signal of the kernel comes already at the end of the thread that started `up`. The caller calls the
// cancel function.
func WithParent(ctx context.Context) (context.Context, context.CancelFunc, error) {
	text, found := os.LookupEnv(parentEnv)
	if !found {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	os.Unsetenv(parentEnv) // the roles have the lifeline
	pid, err := strconv.Atoi(text)
	if err != nil {
		return nil, nil, fmt.Errorf("watch the parent: %s=%q is no process id: %w", parentEnv, text, err)
	}
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(context.Canceled) }
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		end(errParentEnded)
		return ctx, cancel, nil
	}
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("watch the parent %d: %w", pid, err)
	}
	pidfd := os.NewFile(uintptr(fd), "parent")
	var watch sync.WaitGroup
	watch.Go(func() { // ends when pidfd is closed
		raw, err := pidfd.SyscallConn()
		if err == nil && raw.Read(hasEnded) == nil {
			end(errParentEnded)
		}
	})
	return ctx, func() { cancel(); _ = pidfd.Close(); watch.Wait() }, nil
}

// hasEnded reports whether the process of a pidfd has ended.
func hasEnded(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

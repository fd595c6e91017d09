// Package seam holds the interfaces through which roles use the clock and the network, so that a simulation can replace
// both. The interface for files is in package sources.
package seam

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the time of a role.
type Clock interface {
	Now() time.Time
	// Boottime returns nanoseconds since boot, equal for all processes of a host. It advances while the host sleeps.
	Boottime() int64
	After(d time.Duration) <-chan time.Time
}

// System is the real clock.
type System struct{}

// Now is time.Now.
func (System) Now() time.Time { return time.Now() }

// Boottime reads CLOCK_BOOTTIME.
func (System) Boottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Now().UnixNano()
	}
	return ts.Nano()
}

// After is time.After.
func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Net listens and dials the sockets between roles.
type Net interface {
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

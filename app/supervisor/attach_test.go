package supervisor

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The supervisor's end of the lifeline becomes blocking again whenever it starts another child. A child that leaves
// must not wait for the death of the supervisor then.
func TestLeaveWhileTheLifelineBlocks(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	inherited, err := unix.Dup(int(read.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	lifeline, err := adopt(strconv.Itoa(inherited), true)
	if err != nil {
		t.Fatal(err)
	}
	defer lifeline.Close()
	if err := unix.SetNonblock(int(read.Fd()), false); err != nil {
		t.Fatal(err)
	}
	l := &Life{runDir: t.TempDir(), lifeline: lifeline}
	ctx, leave := l.Context(t.Context())
	time.Sleep(20 * time.Millisecond) // until it reads
	leave()
	if ctx.Err() == nil {
		t.Error("the context did not end")
	}
}

package reshape

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"millrace/app/supervisor"
	"millrace/internal/seam"
)

// TestEachRequestIsAnsweredOnce: requests are carried out in order, an error of apply reaches the one who asked, and
// without an `up` there is an error.
func TestEachRequestIsAnsweredOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(supervisor.RuntimeDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var served sync.WaitGroup
	var seen []int
	served.Go(func() {
		Serve(ctx, seam.System{}, dir, func(r Request) error {
			if seen = append(seen, r.Ranks); r.Ranks > 4 {
				return errors.New("too many")
			}
			return nil
		})
	})
	for ranks, want := range map[int]string{2: "", 4: "", 8: "too many"} {
		err := ask(t.Context(), seam.System{}, dir, Request{Ranks: ranks}, lives)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d ranks: %v, want %q", ranks, err, want)
		}
	}
	end()
	served.Wait()
	if len(seen) != 3 {
		t.Errorf("carried out for %d ranks", seen)
	}
	late, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := ask(late, seam.System{}, dir, Request{Ranks: 1}, lives); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without an up: %v", err)
	}
}

func lives() error { return nil }

// TestOneCommandAsksAtATime: a second one is refused at once while the first waits. A request whose command was
// interrupted is not wanted any more, and a command notices that its `up` has ended.
func TestOneCommandAsksAtATime(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(supervisor.RuntimeDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var done sync.WaitGroup
	seen, wanted := make(chan Request), make(chan bool)
	done.Go(func() {
		Serve(ctx, seam.System{}, dir, func(r Request) error {
			seen <- r
			for IsWanted(dir, r) {
				time.Sleep(time.Millisecond)
			}
			wanted <- false
			return errors.New("withdrawn")
		})
	})
	first, interrupt := context.WithCancel(t.Context())
	asked := make(chan error)
	done.Go(func() { asked <- ask(first, seam.System{}, dir, Request{Ranks: 2}, lives) })
	if r := <-seen; r.Ranks != 2 || !IsWanted(dir, r) {
		t.Errorf("%+v", r)
	}
	if err := ask(t.Context(), seam.System{}, dir, Request{Ranks: 4}, lives); !errors.Is(err, errPending) {
		t.Errorf("a second command: %v", err)
	}
	interrupt()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted command: %v", err)
	}
	<-wanted
	gone := errors.New("it has ended")
	if err := ask(t.Context(), seam.System{}, dir, Request{Ranks: 4}, func() error { return gone }); err != gone {
		t.Errorf("without an up: %v", err)
	}
	end()
	done.Wait()
}

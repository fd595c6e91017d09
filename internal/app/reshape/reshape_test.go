package reshape

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"millrace/internal/app/supervisor"
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
		err := Ask(t.Context(), seam.System{}, dir, Request{Ranks: ranks})
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
	if err := Ask(late, seam.System{}, dir, Request{Ranks: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without an up: %v", err)
	}
}

package secure

import (
	"log/slog"
	"sync"
	"time"
)

// A text is logged again after repeatAfter, because the fault is still there. Texts beyond mostTexts in that time are
// dropped, so that a stranger cannot fill the log.
const (
	repeatAfter = 10 * time.Minute
	mostTexts   = 64
)

// warnings logs each text once.
type warnings struct {
	log *slog.Logger

	mu    sync.Mutex
	since time.Time
	told  map[string]bool
}

func (w *warnings) tell(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.told == nil || now.Sub(w.since) > repeatAfter {
		w.told, w.since = map[string]bool{}, now
	}
	if !w.told[text] && len(w.told) < mostTexts {
		w.told[text] = true
		w.log.Warn(text)
	}
}

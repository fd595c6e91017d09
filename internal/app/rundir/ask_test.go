package rundir

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/proto"
)

// TestAnOrchestratorThatIsAwayIsNamed checks the error for people when the socket is missing, and when no process
// listens on it.
func TestAnOrchestratorThatIsAwayIsNamed(t *testing.T) {
	absent, deserted := t.TempDir(), t.TempDir()
	address := Socket(deserted, "orchestrator")
	if err := os.MkdirAll(filepath.Dir(address), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"no socket": absent, "nobody behind it": deserted} {
		_, status := AskStatus(t.Context(), dir)
		ledger := Ask(dir, func(client proto.OrchestratorClient) error {
			stream, err := client.Ledger(t.Context(), &proto.LedgerRequest{ByStep: true})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		})
		for _, err := range []error{status, ledger} {
			if err == nil || !strings.Contains(err.Error(), "is just ending") || strings.Contains(err.Error(), "dial") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"millrace/app/supervisor"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/orchestrator/lease/hosts"
)

// Site is the place of an `up` in a run with several hosts. All of its processes read it.
type Site struct {
	hosts.Host
	File   string `json:"file"`   // path of the cluster file
	Listen string `json:"listen"` // address at which this host listens
}

// WriteSite writes a site for the processes of a run directory.
func WriteSite(runDir string, s Site) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the site: %w", err)
	}
	return os.WriteFile(sitePath(runDir), text, 0o600)
}

// ReadSite returns the site of a run directory, nil if its run has one host.
func ReadSite(runDir string) (*Site, error) {
	text, err := os.ReadFile(sitePath(runDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s := new(Site)
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		return nil, fmt.Errorf("read the site of %s: %w", runDir, err)
	}
	return s, nil
}

// Network returns the way from this host to the others, and its credentials. The caller closes the network.
func (s *Site) Network(log *slog.Logger) (*Network, *secure.Credentials, error) {
	f, err := Load(s.File)
	if err != nil {
		return nil, nil, err
	}
	if err := f.ListenAt(s.Listen); err != nil {
		return nil, nil, err
	}
	credentials, err := f.Credentials(log)
	if err != nil {
		return nil, nil, err
	}
	return newNetwork(f, seam.SystemNet{}), credentials, nil
}

func sitePath(runDir string) string { return filepath.Join(supervisor.RuntimeDir(runDir), "site.json") }

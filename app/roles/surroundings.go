package roles

import (
	"log/slog"
	"net"

	"millrace/app/cluster"
	"millrace/app/rundir"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/orchestrator/lease"
)

// surroundings are the host of a process, and the network to the other roles.
type surroundings struct {
	site        cluster.Site     // zero: the run has one host
	network     *cluster.Network // nil: the run has one host
	credentials *secure.Credentials
}

// openSurroundings reads the surroundings of a process. The caller closes it.
func openSurroundings(runDir string, log *slog.Logger) (*surroundings, error) {
	site, err := cluster.ReadSite(runDir)
	if site == nil || err != nil {
		return &surroundings{}, err
	}
	p := &surroundings{site: *site}
	p.network, p.credentials, err = site.Network(log)
	return p, err
}

func (p *surroundings) close() {
	if p.network != nil {
		p.network.Close()
	}
}

// isSpread reports whether the run has several hosts.
func (p *surroundings) isSpread() bool { return p.network != nil }

func (p *surroundings) net() seam.Net {
	if p.network != nil {
		return p.network
	}
	return seam.SystemNet{}
}

// orchestrator returns the address of the orchestrator of a stream.
func (p *surroundings) orchestrator(s *stream) string {
	if p.isSpread() {
		return cluster.Leader(s.name)
	}
	return rundir.Socket(s.dir, "orchestrator")
}

// remote returns the address at which a loader or a sidecar listens for other hosts; empty: there are none.
func (p *surroundings) remote() string {
	if !p.isSpread() {
		return ""
	}
	return net.JoinHostPort(p.site.Name, "0")
}

// etcd returns the settings of the run's lease. o has the cluster file of a run with one host.
func (p *surroundings) etcd(o Planning) (lease.EtcdConfig, error) {
	if p.isSpread() {
		c := p.network.File.Etcd()
		c.Line, c.Address, c.StandsBy = p.site.Up, p.network.File.Listen, true
		return c, nil
	}
	f, err := cluster.Load(o.Cluster)
	if err != nil {
		return lease.EtcdConfig{}, err
	}
	c := f.Etcd()
	c.Line = o.Up
	return c, nil
}

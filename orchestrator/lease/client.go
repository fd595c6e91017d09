package lease

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Dial returns a client of the cluster that a configuration names. It does not wait for the cluster, except for a
// password to be checked. The caller closes the client, and bounds each call.
func Dial(ctx context.Context, cfg EtcdConfig) (*clientv3.Client, error) {
	e, err := NewEtcd(cfg)
	if err != nil {
		return nil, err
	}
	return e.dial(ctx)
}

// IsFinal reports whether waiting cannot help against an error of etcd, such as a user without the permission.
func IsFinal(err error) bool { return isFinal(err) }

// Refused adds the cure to an error of etcd that IsFinal.
func Refused(cfg EtcdConfig, err error) error { return cfg.refused(err) }

// Reason returns an error of etcd for people.
func Reason(err error) string { return reason(err) }

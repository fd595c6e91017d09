// Package cluster connects the hosts of a run: the file of the cluster, the place of this host in the run, and the
// network to the other hosts.
//
//	join.go     Join: registering this host
//	site.go     Site: the facts that the processes of one `up` share
//	network.go  Network: addresses of the leader, of other hosts and of this one
//	cluster.go  File: the cluster file
package cluster

import (
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/internal/secure"
	"millrace/orchestrator/lease"
)

// File is a cluster file.
type File struct {
	Path string
	Name string // of the run
	// Listen is the host:port at which other hosts reach this one; empty: the run has one host. With port 0, the kernel
	// chooses the port of each process.
	Listen string
	TLS    secure.Files // all may be empty
	etcd   lease.EtcdConfig
}

// Etcd returns the part of the file that is for etcd.
func (f *File) Etcd() lease.EtcdConfig { return f.etcd }

// Credentials returns the credentials of this host's processes; nil: they reach other hosts on loopback alone.
func (f *File) Credentials(log *slog.Logger) (*secure.Credentials, error) {
	if f.TLS == (secure.Files{}) {
		return nil, nil
	}
	return secure.New(f.TLS, log)
}

// Host returns the name of this host: the host of `listen`, else its own name.
func (f *File) Host() string { return f.etcd.Host }

// content is the content of the file.
type content struct {
	Name     string   `yaml:"name" jsonschema:"required"`
	Etcd     []string `yaml:"etcd" jsonschema:"required"`
	TLS      *files   `yaml:"tls"`
	User     string   `yaml:"user"`
	Password string   `yaml:"password_file"`
	Listen   string   `yaml:"listen"`
}

// files are PEM files, relative to the directory of the file.
type files struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Load reads and validates a file. An error wraps millrace.ErrInvalid. Load connects to nothing.
func Load(path string) (*File, error) {
	f, err := read(path)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "find cluster file: %w", err)
	}
	out := &File{Path: path, Name: f.Name, Listen: f.Listen,
		etcd: lease.EtcdConfig{Run: f.Name, Endpoints: f.Etcd, User: f.User, Stream: millrace.Train}}
	c := &out.etcd
	if c.Host, err = os.Hostname(); err != nil {
		c.Host = "a host without a name"
	}
	if f.Listen != "" {
		if c.Host, _, err = net.SplitHostPort(f.Listen); err != nil {
			return nil, millrace.Errorf(millrace.ErrInvalid, "%s: listen: %w", path, err)
		}
	}
	dir := filepath.Dir(path)
	if f.TLS != nil {
		out.TLS = secure.Files{
			CA: within(dir, f.TLS.CA), Cert: within(dir, f.TLS.Cert), Key: within(dir, f.TLS.Key),
		}
		c.CA, c.Cert, c.Key = out.TLS.CA, out.TLS.Cert, out.TLS.Key
	}
	if f.Password != "" {
		text, err := os.ReadFile(within(dir, f.Password))
		if err != nil {
			return nil, millrace.Errorf(millrace.ErrInvalid, "%s: read password_file: %w", path, err)
		}
		c.Password = strings.TrimRight(string(text), "\r\n")
	}
	if _, err := lease.NewEtcd(*c); err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s: %w", path, err)
	}
	return out, nil
}

// ListenAt makes this host listen at an address in place of `listen` of the file.
func (f *File) ListenAt(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || !isAddress(address) {
		return millrace.Errorf(millrace.ErrInvalid, "--listen %s is no address of this host: write host:port, as the "+
			"other hosts reach this one, such as host-3.example:9400; with port 0, the kernel chooses one", address)
	}
	f.Listen, f.etcd.Host = address, host
	return nil
}

// HasNoPort reports whether the kernel chooses the port of `listen`.
func (f *File) HasNoPort() bool {
	_, port, _ := net.SplitHostPort(f.Listen) // Load and ListenAt have checked it
	number, err := strconv.Atoi(port)
	return err == nil && number == 0
}

// within returns a path that is relative to a directory. An empty one stays empty.
func within(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// read decodes a file.
func read(path string) (content, error) {
	var out content
	f, err := os.Open(path)
	if err != nil {
		return out, millrace.Errorf(millrace.ErrInvalid, "read cluster file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, tree.MaxFile+1))
	if err != nil {
		return out, millrace.Errorf(millrace.ErrInvalid, "read cluster file: %w", err)
	}
	doc, errs := tree.Read(path, text)
	if len(errs) > 0 {
		return out, errs.Sorted()
	}
	d := decode.Decoder{Document: doc, Hints: decode.Hints{
		Examples: map[string]string{
			"name": "run-17", "etcd": "[https://etcd-1:2379, https://etcd-2:2379, https://etcd-3:2379]",
			"tls": "{ca: ca.pem, cert: host.pem, key: host-key.pem}", "listen": "host-3.example:9400",
		},
		Home:  func(string) string { return "" },
		Value: func(string, string) (string, string) { return "", "" },
	}}
	d.Decode("", doc.Root, reflect.ValueOf(&out).Elem(), decode.Rules{})
	if at, written := doc.Place("listen"); written && !isAddress(out.Listen) {
		d.Fail("listen", at, "listen is no address of this host",
			"write host:port, as the other hosts reach this one, such as host-3.example:9400; with port 0, the kernel "+
				"chooses one")
	}
	if len(d.Errs) > 0 {
		return out, d.Errs.Sorted()
	}
	return out, nil
}

// isAddress reports whether a text is a host with a port, and not all addresses of a host.
func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	_, bad := strconv.ParseUint(port, 10, 16)
	ip := net.ParseIP(host)
	return err == nil && bad == nil && host != "" && (ip == nil || !ip.IsUnspecified())
}

// Package cluster reads the file that names the etcd cluster of a run.
package cluster

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"millrace"
	"millrace/internal/app/config/decode"
	"millrace/internal/app/config/tree"
	"millrace/orchestrator/lease"
)

// file is the content of the file.
type file struct {
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

// Load reads and validates a file. The result lacks the stream. An error wraps millrace.ErrInvalid. Load connects to
// nothing.
func Load(path string) (lease.EtcdConfig, error) {
	f, err := read(path)
	if err != nil {
		return lease.EtcdConfig{}, err
	}
	c := lease.EtcdConfig{Run: f.Name, Endpoints: f.Etcd, User: f.User, Stream: millrace.Train}
	if c.Host, err = os.Hostname(); err != nil {
		c.Host = "a host without a name"
	}
	dir := filepath.Dir(path)
	if f.TLS != nil {
		c.CA, c.Cert, c.Key = within(dir, f.TLS.CA), within(dir, f.TLS.Cert), within(dir, f.TLS.Key)
	}
	if f.Password != "" {
		text, err := os.ReadFile(within(dir, f.Password))
		if err != nil {
			return c, millrace.Errorf(millrace.ErrInvalid, "%s: read password_file: %w", path, err)
		}
		c.Password = strings.TrimRight(string(text), "\r\n")
	}
	if _, err := lease.NewEtcd(c); err != nil {
		return c, millrace.Errorf(millrace.ErrInvalid, "%s: %w", path, err)
	}
	return c, nil
}

// within returns a path that is relative to a directory. An empty one stays empty.
func within(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// read decodes a file.
func read(path string) (file, error) {
	var out file
	f, err := os.Open(path)
	if err != nil {
		return out, millrace.Errorf(millrace.ErrInvalid, "read cluster file: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, tree.MaxFile+1))
	if err != nil {
		return out, millrace.Errorf(millrace.ErrInvalid, "read cluster file: %w", err)
	}
	doc, errs := tree.Read(path, content)
	if len(errs) > 0 {
		return out, errs.Sorted()
	}
	d := decode.Decoder{Document: doc, Hints: decode.Hints{
		Examples: map[string]string{
			"name": "run-17", "etcd": "[https://etcd-1:2379, https://etcd-2:2379, https://etcd-3:2379]",
			"tls": "{ca: ca.pem, cert: client.pem, key: client-key.pem}",
		},
		Home:  func(string) string { return "" },
		Value: func(string, string) (string, string) { return "", "" },
	}}
	d.Decode("", doc.Root, reflect.ValueOf(&out).Elem(), decode.Rules{})
	if at, written := doc.Place("listen"); written {
		d.Fail("listen", at, "listen is for ranks on several hosts, which are not supported yet", "leave it out")
	}
	if len(d.Errs) > 0 {
		return out, d.Errs.Sorted()
	}
	return out, nil
}

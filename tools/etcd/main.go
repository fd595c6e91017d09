// Command etcd is etcd's own server, built from its module for the tests: see tools/etcd.sh.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }

// Package certs is the command `millrace certs`, which touches no run.
package certs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/app/exit"
	"millrace/internal/secure"
	"millrace/internal/secure/issue"
)

// Shell is the rules of all commands of the program.
type Shell struct {
	NoArgs cobra.PositionalArgs                                    // refuses arguments
	Page   func(*cobra.Command, func(w *bufio.Writer) error) error // passes standard output to a function
}

// Command returns `millrace certs`.
func Command(s Shell) *cobra.Command {
	c := &cobra.Command{
		Use:   "certs",
		Short: "Make the certificates with which the hosts of a run know each other",
		Args:  s.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(initCommand(s))
	return c
}

// certs is one call of `millrace certs init`.
type certs struct {
	issue.Request
	roles []string
	json  bool
}

func initCommand(s Shell) *cobra.Command {
	r := &certs{}
	c := &cobra.Command{
		Use:   "init",
		Short: "Make a CA and a certificate for each host, or renew certificates",
		Long: `Make the certificates of a run on several hosts.

If the directory has no CA, it gets one: ca.pem and ca-key.pem. Each host gets HOST.pem and HOST-key.pem, valid for its
name or IP address alone.

Copy ca.pem and the two files of a host to that host. Keep ca-key.pem elsewhere: it makes certificates for everything.

A second call with the same directory keeps the CA, adds hosts, and renews the certificates of hosts that had one. A
run reads renewed files by itself. The CA is never replaced: name another directory for another CA.

A certificate names the roles of a run that its holder may act as: orchestrator, loader, sidecar, and operator, who asks
for the state of a run and changes its mixture. A host gets all of them; a --name without host is an operator.`,
		Example: "  millrace certs init --dir certs --hosts a.example,b.example,10.0.0.3\n" +
			"  millrace certs init --dir certs --name alice",
		Args: s.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return r.run(c, s) },
	}
	c.Flags().StringVar(&r.Dir, "dir", "", "directory of the CA and the certificates (required)")
	c.Flags().StringSliceVar(&r.Hosts, "hosts", nil,
		"names or IP addresses of hosts, as in listen of the cluster file, or *.DOMAIN")
	c.Flags().StringVar(&r.Name, "name", "", "name of a person or a program without a host")
	c.Flags().StringSliceVar(&r.roles, "roles", nil, "roles of these certificates (default: all; of --name: operator)")
	c.Flags().IntVar(&r.Days, "days", 365, "days for which the certificates are valid")
	c.Flags().BoolVar(&r.json, "json", false, "print one JSON object")
	return c
}

func (r *certs) run(c *cobra.Command, s Shell) error {
	if r.Dir == "" {
		return exit.Usagef("millrace certs init: --dir is missing: write a directory, such as --dir certs")
	}
	if len(r.Hosts) > 0 && r.Name != "" {
		return exit.Usagef("millrace certs init: --hosts and --name have different roles: use one call for each")
	}
	r.Now = time.Now()
	for _, name := range r.roles {
		r.Roles = append(r.Roles, secure.Role(name))
	}
	switch {
	case len(r.Roles) > 0:
	case r.Name != "":
		r.Roles = []secure.Role{secure.Operator}
	default:
		r.Roles = secure.Roles()
	}
	result, err := issue.Issue(r.Request)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return exit.Usagef("millrace certs init: --dir %s is a file: name a directory", r.Dir)
	case errors.Is(err, millrace.ErrInvalid):
		return exit.Usagef("millrace certs init: %w", err)
	case err != nil:
		return exit.Failure(err)
	}
	return s.Page(c, func(w *bufio.Writer) error {
		if r.json {
			return json.NewEncoder(w).Encode(result)
		}
		r.print(w, result)
		return nil
	})
}

// print says which file belongs on which host.
func (r *certs) print(w *bufio.Writer, result *issue.Result) {
	verb := "uses"
	if result.Made {
		verb = "made"
	}
	fmt.Fprintf(w, "%s the CA %s, valid to %s; keep its key off the hosts\n", verb, result.CA, date(result.Until))
	for _, x := range result.Certificates {
		fmt.Fprintf(w, "made %s and %s, valid to %s, for the roles %v\n", x.Cert, filepath.Base(x.Key), date(x.Until),
			x.Roles)
	}
	for _, x := range result.Certificates {
		if r.Name == "" {
			fmt.Fprintf(w, "\ncluster file of %s, which needs these three files beside it:\n", x.Name)
			fmt.Fprintf(w, "listen: %q\n", net.JoinHostPort(x.Name, "9400"))
		} else {
			fmt.Fprintf(w, "\nfor %s:\n", x.Name)
		}
		fmt.Fprintf(w, "tls: {ca: %s, cert: %s, key: %s}\n", filepath.Base(result.CA), filepath.Base(x.Cert),
			filepath.Base(x.Key))
	}
}

func date(t time.Time) string { return t.UTC().Format(time.DateOnly) }

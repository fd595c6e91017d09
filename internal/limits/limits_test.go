package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// place returns the limits of a made-up host: files below its root, and limits of the process.
func place(t *testing.T, files map[string]string, limits map[int]uint64) System {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err := errors.Join(err, os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return System{Root: root, Limit: func(resource int) (uint64, bool) {
		n, ok := limits[resource]
		return n, ok
	}}
}

// TestTheLimitIsNamed: for each error and each way to die, with the limits of either version of cgroups, or of none.
func TestTheLimitIsNamed(t *testing.T) {
	process := map[int]uint64{unix.RLIMIT_NOFILE: 64, unix.RLIMIT_FSIZE: 1000, unix.RLIMIT_AS: 3 << 30,
		unix.RLIMIT_NPROC: 77}
	two := place(t, map[string]string{
		"proc/self/cgroup":                     "0::/job/step\n",
		"sys/fs/cgroup/job/memory.max":         "2147483648\n",
		"sys/fs/cgroup/job/step/pids.max":      "100\n",
		"sys/fs/cgroup/job/step/memory.max":    "max\n",
		"sys/fs/cgroup/job/step/memory.events": "low 0\noom 2\noom_kill 5\n",
	}, process)
	one := place(t, map[string]string{
		"proc/self/cgroup": "5:memory:/a\n4:cpu,pids:/b\n0::/\n",
		"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1073741824\n",
		"sys/fs/cgroup/memory/a/memory.oom_control":    "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		"sys/fs/cgroup/pids/b/pids.max":                "50\n",
	}, nil)
	bare := place(t, nil, nil)
	for _, c := range []struct{ got, want string }{
		{two.of(unix.EMFILE), "64 descriptors (ulimit -n): raise `ulimit -n`, or set a lower limits.open_files"},
		{two.of(unix.ENFILE), "fs.file-max"},
		{two.of(unix.EFBIG), "1000 bytes (ulimit -f): raise"},
		{two.of(unix.ENOMEM), "3072 MiB of addresses (ulimit -v), the cgroup may have 2048 MiB of memory: raise it"},
		{one.of(unix.ENOMEM), "the cgroup may have 1024 MiB of memory: raise it"},
		{two.processes(), "77 processes and threads (ulimit -u), the cgroup may have 100 (pids.max): raise the limit"},
		{one.processes(), "the cgroup may have 50 (pids.max): raise the limit"},
		{bare.processes(), "kernel.threads-max"},
		{two.OfDeath(unix.SIGKILL, "", true), "killed by the kernel for memory: the process may have 3072 MiB"},
		{bare.OfDeath(unix.SIGKILL, "", true), "killed by the kernel for memory"},
		{two.OfDeath(0, "SIGXFSZ: file size limit exceeded", false), "ulimit -f"},
		{two.OfDeath(0, "fatal error: newosproc", false), "ulimit -u"},
		{two.OfDeath(0, "fatal error: runtime: cannot allocate memory", false), "ulimit -v"},
		{fmt.Sprint(two.Kills(), one.Kills(), bare.Kills()), "5 3 0"},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("got %q, want %q in it", c.got, c.want)
		}
	}
	for _, got := range []string{bare.of(unix.EFBIG), bare.of(unix.ENOMEM), two.of(unix.ENOENT),
		two.OfDeath(unix.SIGKILL, "", false), two.OfDeath(unix.SIGTERM, "", true)} {
		if got != "" {
			t.Errorf("got %q, want no limit", got)
		}
	}
}

// TestExplain: an error keeps its causes, and its limit is named once.
func TestExplain(t *testing.T) {
	err := Explain(Explain(fmt.Errorf("open a: %w", syscall.EMFILE)))
	if !errors.Is(err, syscall.EMFILE) || strings.Count(err.Error(), "ulimit -n)") != 1 ||
		!strings.HasPrefix(err.Error(), "open a: too many open files: ") {
		t.Error(err)
	}
	if err := ExplainStart(syscall.EAGAIN); !errors.Is(err, syscall.EAGAIN) || err.Error() == syscall.EAGAIN.Error() {
		t.Error(err)
	}
	for _, err := range []error{nil, errors.New("plain"), syscall.ENOENT, syscall.EAGAIN} {
		if got := Explain(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

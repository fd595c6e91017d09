package main

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"millrace/app/cluster"
	"millrace/app/config"
	"millrace/app/supervisor"
	"millrace/app/up"
)

// container is a container of a manifest.
type container struct {
	Name, Image string
	Args        []string
}

// workload is an object of a manifest. Only those with pods have containers.
type workload struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				Grace          int         `yaml:"terminationGracePeriodSeconds"`
				InitContainers []container `yaml:"initContainers"`
				Containers     []container
			}
		}
	}
}

// TestManifestsHaveRightArguments: each container of the program in deploy/kubernetes has arguments that the program
// accepts.
func TestManifestsHaveRightArguments(t *testing.T) {
	dir := filepath.Join("..", "..", "deploy", "kubernetes")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// Kubernetes replaces these.
	variables := strings.NewReplacer("$(WORLD_SIZE)", "4", "$(RANKS)", "2", "$(POD_NAME)", "loader-3",
		"$(POD_NAMESPACE)", "train", "$(JOB_COMPLETION_INDEX)", "1", "/etc/millrace/", filepath.Clean(dir)+"/none/")
	var seen []string
	for _, file := range files {
		for _, c := range containers(t, file) {
			if c.Image != "millrace" {
				continue
			}
			seen = append(seen, c.Args[0])
			var args []string
			for _, a := range c.Args {
				args = append(args, variables.Replace(a))
			}
			if strings.Contains(strings.Join(args, " "), "$(") {
				t.Errorf("%s: %s has an unknown variable", file, args)
			}
			root := rootCommand()
			root.SetArgs(args)
			root.SetOut(io.Discard)
			root.SetErr(io.Discard)
			// The arguments are right, so the first problem is the file that is not there.
			if err := root.ExecuteContext(t.Context()); err == nil ||
				!strings.Contains(err.Error(), "none/mixture.yaml") {
				t.Errorf("%s: millrace %s: %v", file, strings.Join(args, " "), err)
			}
		}
	}
	slices.Sort(seen)
	if want := []string{"loader", "orchestrator", "shadow", "sidecar"}; !slices.Equal(seen, want) {
		t.Errorf("the manifests run %v, want %v", seen, want)
	}
	if _, err := config.Load(filepath.Join(dir, "mixture.yaml")); err != nil {
		t.Error(err)
	}
	if f, err := cluster.Load(filepath.Join(dir, "cluster.yaml")); err != nil {
		t.Error(err)
	} else if f.Listen != "" {
		t.Error("listen is an argument of each pod, and no entry of cluster.yaml")
	}
}

// TestManifestsGiveTimeToLeave: a pod has longer to end after SIGTERM than its command takes at most, so that it needs
// no preStop hook. A loader hands over its stripes in that time.
func TestManifestsGiveTimeToLeave(t *testing.T) {
	const margin = 5 * time.Second // for the command itself, after its process was killed
	files, err := filepath.Glob(filepath.Join("..", "..", "deploy", "kubernetes", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pods := 0
	for _, file := range files {
		for _, w := range workloads(t, file) {
			spec := w.Spec.Template.Spec
			for _, c := range append(spec.InitContainers, spec.Containers...) {
				if c.Image != "millrace" {
					continue
				}
				pods++
				u := up.Up{Role: c.Args[0]}
				most := cmp.Or(u.StopGrace(), supervisor.DefaultGrace) + margin
				if got := time.Duration(spec.Grace) * time.Second; got < most {
					t.Errorf("%s: a pod of %s has %v to end, and needs up to %v", file, c.Args[0], got, most)
				}
			}
		}
	}
	if pods != 4 {
		t.Errorf("%d pods run millrace, want 4", pods)
	}
}

func containers(t *testing.T, file string) (out []container) {
	t.Helper()
	for _, w := range workloads(t, file) {
		out = append(append(out, w.Spec.Template.Spec.InitContainers...), w.Spec.Template.Spec.Containers...)
	}
	return out
}

func workloads(t *testing.T, file string) []workload {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []workload
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var w workload
		if err := d.Decode(&w); errors.Is(err, io.EOF) {
			return out
		} else if err != nil && w.Kind != "" {
			t.Fatalf("%s: %v", file, err)
		}
		if w.Kind == "StatefulSet" || w.Kind == "Job" {
			out = append(out, w)
		}
	}
}

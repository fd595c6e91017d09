package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"millrace/internal/app/cluster"
	"millrace/internal/app/config"
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

func containers(t *testing.T, file string) []container {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []container
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var w workload
		if err := d.Decode(&w); errors.Is(err, io.EOF) {
			return out
		} else if err != nil && w.Kind != "" {
			t.Fatalf("%s: %v", file, err)
		}
		if w.Kind == "StatefulSet" || w.Kind == "Job" {
			out = append(append(out, w.Spec.Template.Spec.InitContainers...), w.Spec.Template.Spec.Containers...)
		}
	}
}

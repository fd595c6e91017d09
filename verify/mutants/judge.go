package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// bench holds the settings of judging.
type bench struct {
	root    string // of the repository
	scratch string
	seeds   int           // seeds of the simulation per mutant
	faults  int           // faults of e2e/chaos.py per mutant
	limit   time.Duration // for one mutant
}

// verdict is the result of judging a mutant.
type verdict struct {
	caught bool
	how    string        // the violated property and its place, or the checks that it survived
	cpu    time.Duration // processor time of judging, without building
}

// try builds and judges a mutant; nil is the unchanged product. An error means that it could not be judged.
func (b *bench) try(ctx context.Context, m *mutant, judge string) (verdict, error) {
	dir, err := os.MkdirTemp(b.scratch, "")
	if err != nil {
		return verdict{}, err
	}
	defer os.RemoveAll(dir)
	files := map[string]string{}
	if m != nil {
		if files, err = m.apply(b.root); err != nil {
			return verdict{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	v := verdict{}
	switch tested, isTests := strings.CutPrefix(judge, byTests); {
	case isTests:
		v, err = b.tests(ctx, dir, files, tested)
	case judge == bySim:
		v, err = b.sim(ctx, dir, files)
	default:
		v, err = b.chaos(ctx, dir, files, m != nil && m.isPython())
	}
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("there was no verdict after %v", b.limit)
	}
	return v, err
}

// overlay writes changed files to dir. With the returned flag, the go command uses them in place of the product's
// files.
func (b *bench) overlay(dir string, files map[string]string) (flag string, err error) {
	replace := map[string]string{}
	for path, text := range files {
		at := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(b.root, path)] = at
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, "overlay.json")
	return "-overlay=" + at, os.WriteFile(at, text, 0o644)
}

func (b *bench) build(ctx context.Context, dir string, files map[string]string, command ...string) error {
	flag, err := b.overlay(dir, files)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", append([]string{command[0], flag, "-ldflags=-s -w"}, command[1:]...)...)
	build.Dir = b.root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w:\n%s", err, out)
	}
	return nil
}

// sim plays seeds of the simulation.
func (b *bench) sim(ctx context.Context, dir string, files map[string]string) (verdict, error) {
	binary := filepath.Join(dir, "sim")
	if err := b.build(ctx, dir, files, "test", "-c", "-vet=off", "-o", binary, "./verify/sim"); err != nil {
		return verdict{}, err
	}
	play := exec.CommandContext(ctx, binary, "-test.run=^TestSeeds$", "-judge", fmt.Sprint("-seeds=", b.seeds))
	play.Dir = dir
	return judged(play,
		regexp.MustCompile(`(?m)judged: (.*)|(workload \d+ without faults: .*)|^(panic: .*|fatal error: .*)`),
		fmt.Sprintf("%d seeds", b.seeds))
}

// tests runs the tests of one package.
func (b *bench) tests(ctx context.Context, dir string, files map[string]string, tested string) (verdict, error) {
	binary := filepath.Join(dir, "tests")
	if err := b.build(ctx, dir, files, "test", "-c", "-vet=off", "-o", binary, tested); err != nil {
		return verdict{}, err
	}
	flags := []string{"-test.failfast"}
	// Property tests must not write their failures into the package.
	if quiet := "-rapid.nofailfile"; exec.CommandContext(ctx, binary, "-test.list=^$", quiet).Run() == nil {
		flags = append(flags, quiet)
	}
	play := exec.CommandContext(ctx, binary, flags...)
	play.Dir = filepath.Join(b.root, tested)
	return judged(play, regexp.MustCompile(`(?m)^--- FAIL: (.*) \(|^(panic: .*|fatal error: .*)`),
		"the tests of "+tested)
}

// chaos injects faults into real processes. It compares them with fault-free runs of the unchanged product.
func (b *bench) chaos(ctx context.Context, dir string, files map[string]string, python bool) (verdict, error) {
	binary, path := filepath.Join(dir, "millrace"), filepath.Join(dir, "client")
	goFiles := files
	if python {
		goFiles = nil
	}
	if err := b.build(ctx, dir, goFiles, "build", "-o", binary, "./cmd/millrace"); err != nil {
		return verdict{}, err
	}
	if err := os.CopyFS(path, os.DirFS(filepath.Join(b.root, client))); err != nil {
		return verdict{}, err
	}
	for name, text := range files {
		if at, ok := strings.CutPrefix(name, client); ok && python {
			if err := os.WriteFile(filepath.Join(path, at), []byte(text), 0o644); err != nil {
				return verdict{}, err
			}
		}
	}
	play := exec.CommandContext(ctx, filepath.Join(b.root, ".venv-e2e/bin/python"),
		filepath.Join(b.root, "e2e/chaos.py"), fmt.Sprint("--faults=", b.faults), "--seed=1", "--beside=2", "--stop",
		"--stage", filepath.Join(b.scratch, "stage"))
	play.Dir = dir
	play.Env = append(os.Environ(), "MILLRACE="+binary, "MILLRACE_CLIENT="+path, "TMPDIR="+dir)
	return judged(
		play,
		regexp.MustCompile(
			`(?m)^ +(P\d+: .*|nothing happened .*|`+"`up`"+` .*|AssertionError: [^\n]*\n?[^\n]*)|^(\w+Error: .*)`),
		fmt.Sprintf("%d faults", b.faults),
	)
}

// judged runs a judge. The judge exits with 0 if it found nothing. finding matches its output about a finding.
func judged(play *exec.Cmd, finding *regexp.Regexp, survived string) (verdict, error) {
	var out bytes.Buffer
	play.Stdout, play.Stderr = &out, &out
	play.WaitDelay = time.Second
	err := play.Run()
	if play.ProcessState == nil {
		return verdict{}, err
	}
	v := verdict{cpu: play.ProcessState.UserTime() + play.ProcessState.SystemTime()}
	if err == nil {
		v.how = survived
		return v, nil
	}
	for i, found := range finding.FindStringSubmatch(out.String()) {
		if i > 0 && found != "" {
			v.how, v.caught = found, true
		}
	}
	var exit *exec.ExitError
	if !v.caught && (errors.As(err, &exit) || errors.Is(err, fs.ErrNotExist)) {
		return v, fmt.Errorf("the judge ended without a finding: %w:\n%s", err, out.String())
	}
	return v, nil
}

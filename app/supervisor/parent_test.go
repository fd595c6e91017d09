package supervisor

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

func TestContextEndsWithTheParent(t *testing.T) {
	parent := exec.Command("sleep", "60")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(parentEnv, strconv.Itoa(parent.Process.Pid))
	ctx, leave, err := WithParent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	select {
	case <-ctx.Done():
		t.Fatal("the context ended before the parent")
	case <-time.After(50 * time.Millisecond):
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the context outlives the parent")
	}
	if err := context.Cause(ctx); !errors.Is(err, errParentEnded) {
		t.Errorf("the cause is %v", err)
	}
}

func TestContextOfADeadParentHasEnded(t *testing.T) {
	parent := exec.Command("true")
	if err := parent.Run(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(parentEnv, strconv.Itoa(parent.Process.Pid))
	ctx, leave, err := WithParent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if ctx.Err() == nil {
		t.Error("the parent has ended, and the context has not")
	}
}

func TestContextWithoutAParentEndsWithItsOwn(t *testing.T) {
	own, cancel := context.WithCancel(t.Context())
	ctx, leave, err := WithParent(own)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if cancel(); ctx.Err() == nil {
		t.Error("the context does not end with its own")
	}
	t.Setenv(parentEnv, "x")
	if _, _, err := WithParent(t.Context()); err == nil {
		t.Error("MILLRACE_PARENT=x was accepted")
	}
}

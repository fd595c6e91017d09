package remote

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"millrace"
	"millrace/internal/needs"
	"millrace/sources"
	"millrace/sources/find"
)

// emulator is a service of its own process, with a bucket `data`.
type emulator struct {
	pattern string // of all its files
	storage Storage
	put     func(t *testing.T, key string, content []byte)
}

// startService starts a program that serves a port of this host, and waits until it answers.
func startService(t *testing.T, port int, env []string, program string, args ...string) {
	t.Helper()
	said := &bytes.Buffer{}
	c := exec.Command(program, args...)
	c.Env, c.Stdout, c.Stderr, c.Dir = append(os.Environ(), env...), said, said, t.TempDir()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err == nil {
			answer.Body.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not answer: %v\n%s", program, err, said)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startAzurite starts Microsoft's emulator of Azure, with an account of this test.
func startAzurite(t *testing.T, program string) *emulator {
	port, key := freePort(t), base64.StdEncoding.EncodeToString([]byte("the key of this test account"))
	startService(t, port, []string{"AZURITE_ACCOUNTS=tester:" + key}, program, "--blobHost", "127.0.0.1", "--blobPort",
		fmt.Sprint(port), "--location", t.TempDir(), "--skipApiVersionCheck")
	root := fmt.Sprintf("http://127.0.0.1:%d/tester", port)
	t.Setenv("AZURE_STORAGE_ACCOUNT", "tester")
	t.Setenv("AZURE_STORAGE_KEY", key)
	shared, err := container.NewSharedKeyCredential("tester", key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := container.NewClientWithSharedKeyCredential(root+"/data", shared, nil)
	if err == nil {
		_, err = c.Create(context.Background(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &emulator{"az://data/a dir/*.bin", Storage{Endpoint: root}, func(t *testing.T, key string, content []byte) {
		if _, err := c.NewBlockBlobClient(key).UploadBuffer(context.Background(), content, nil); err != nil {
			t.Fatal(err)
		}
	}}
}

// startGCS starts fake-gcs-server, which takes no credentials.
func startGCS(t *testing.T, program string) *emulator {
	port := freePort(t)
	root := fmt.Sprintf("http://127.0.0.1:%d", port)
	startService(t, port, nil, program, "-scheme", "http", "-host", "127.0.0.1", "-port", fmt.Sprint(port), "-backend",
		"memory", "-public-host", fmt.Sprintf("127.0.0.1:%d", port))
	post := func(t *testing.T, path, kind string, content []byte) {
		answer, err := http.Post(root+path, kind, bytes.NewReader(content))
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("post %s: %v, %v", path, answer, err)
		}
		answer.Body.Close()
	}
	post(t, "/storage/v1/b?project=p", "application/json", []byte(`{"name": "data"}`))
	return &emulator{"gs://data/a dir/*.bin", Storage{Endpoint: root, Anonymous: true},
		func(t *testing.T, key string, content []byte) {
			post(t, "/upload/storage/v1/b/data/o?uploadType=media&name="+url.QueryEscape(key),
				"application/octet-stream", content)
		}}
}

// TestEmulators: the files of Azurite and of fake-gcs-server are found, and have their bytes; a replaced object, a
// missing one and wrong credentials are errors by name. `make test-stores` installs both services and runs it.
func TestEmulators(t *testing.T) {
	for _, c := range []struct {
		name, variable string
		start          func(*testing.T, string) *emulator
	}{
		{"azure", "MILLRACE_AZURITE", startAzurite},
		{"google", "MILLRACE_GCS_SERVER", startGCS},
	} {
		t.Run(c.name, func(t *testing.T) {
			needs.Require(t, c.variable)
			testEmulator(t, c.start(t, os.Getenv(c.variable)))
		})
	}
}

func testEmulator(t *testing.T, e *emulator) {
	root := strings.TrimSuffix(e.pattern, "*.bin")
	want := map[string][]byte{}
	for i, name := range []string{"a.bin", "b c+ä%.bin", "z.bin"} {
		want[name] = content(1<<20 + i*777777)
		e.put(t, "a dir/"+name, want[name])
	}
	e.put(t, "a dir/other.txt", []byte("no"))
	files := NewHost(Options{}).Files("web", e.storage)
	found, err := find.Resolve(files, find.Query{Base: "/", Patterns: []string{e.pattern}, Format: "jsonl"})
	if err != nil || len(found.Files) != len(want) {
		t.Fatalf("found %v, %v", found, err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, at := range found.Files {
		f, is := open(t, files, at.Path), want[at.Name]
		if f.Size() != int64(len(is)) {
			t.Fatalf("%s has %d bytes, want %d", at.Path, f.Size(), len(is))
		}
		for range 20 {
			off := rng.IntN(len(is))
			p := make([]byte, rng.IntN(len(is)-off)+1)
			if err := sources.ReadFull(f, p, int64(off)); err != nil || !bytes.Equal(p, is[off:off+len(p)]) {
				t.Fatalf("%s from byte %d: %v, or other bytes", at.Path, off, err)
			}
		}
	}
	f := open(t, files, root+"a.bin")
	e.put(t, "a dir/a.bin", content(2 << 20)[1<<20:])
	if n, err := f.ReadAt(make([]byte, 10), 100); n != 0 || !errors.Is(err, millrace.ErrMismatch) ||
		!strings.Contains(err.Error(), root+"a.bin: the object was replaced") {
		t.Errorf("a replaced object: %d bytes, %v", n, err)
	}
	if _, err := files.Open(root + "none.bin"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing object: %v", err)
	}
	if _, err := find.Resolve(files, find.Query{Base: "/",
		Patterns: []string{root[:5] + "no-such-bucket/*.bin"}, Format: "jsonl"}); err == nil {
		t.Error("a missing bucket has files")
	}
	if e.storage.Anonymous {
		return
	}
	secret := base64.StdEncoding.EncodeToString([]byte("another key"))
	t.Setenv("AZURE_STORAGE_KEY", secret)
	_, err = NewHost(Options{}).Files("web", e.storage).Open(root + "z.bin")
	if said := fmt.Sprint(err); !strings.Contains(said, "403") || strings.Contains(said, secret) {
		t.Errorf("wrong credentials: %v", err)
	}
}

package query

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestFolderThatChanges adds up a folder while files in it are removed, as the store does in the background.
func TestFolderThatChanges(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stays"), make([]byte, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		for i := range 200 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(round, "-", i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		dropped := make(chan struct{})
		go func() { // ends by itself; waited for below
			defer close(dropped)
			for i := range 200 {
				os.Remove(filepath.Join(dir, fmt.Sprint(round, "-", i)))
			}
		}()
		for gone := false; !gone; {
			select {
			case <-dropped:
				gone = true
			default:
			}
			if n, err := folderBytes(dir); err != nil || n != 10 {
				t.Fatalf("got %d, %v", n, err)
			}
		}
	}
}

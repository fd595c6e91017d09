// Package oracletest has small models, and the ids that the models' own libraries give for many texts. models.py has
// trained and written them.
package oracletest

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"path"
	"testing"

	"github.com/klauspost/compress/zstd"
)

//go:embed models.tar.zst
var archive []byte

// File returns the content of a file.
func File(t testing.TB, name string) []byte {
	t.Helper()
	in, err := zstd.NewReader(bytes.NewReader(archive), zstd.WithDecoderMaxWindow(1<<27))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for files := tar.NewReader(in); ; {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("there is no file %s", name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if path.Base(file.Name) != name {
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
}

// JSON reads a file into a value.
func JSON(t testing.TB, name string, into any) {
	t.Helper()
	if err := json.Unmarshal(File(t, name), into); err != nil {
		t.Fatal(err)
	}
}

// Case is a text with its ids.
type Case struct {
	Text string
	IDs  []uint32
}

// Parts are the results of parts of tokenizers.
type Parts struct {
	Pieces [][2]any // a piece and its score
	Words  []string // the vocabulary of WordPiece
	Cases  []PartsCase
}

// PartsCase is a text with the results for it.
type PartsCase struct {
	Text, Normal, Word string
	Unigram, WordPiece []uint32
}

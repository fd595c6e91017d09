// Command vocabgen writes the packed vocabularies that the tokenizer embeds, from the .tiktoken files of
// tiktoken-go-loader.
//
// Run it with `go generate ./text/tokenize`; its argument is the directory to write to.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pkoukk/tiktoken-go-loader/assets"

	"millrace/text/tokenize/internal/vocab"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: vocabgen DIRECTORY")
	}
	for _, name := range []string{"r50k_base", "cl100k_base", "o200k_base"} {
		ranks, err := assets.Assets.ReadFile(name + ".tiktoken")
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		vocabulary, err := vocab.ReadTiktoken(bytes.NewReader(ranks))
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		packed, err := vocabulary.Pack()
		if err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(args[0], name+".vocab"), packed, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

package tokenize

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"millrace/text/tokenize/internal/vocab"
)

// sniffed is the number of first bytes that decide a file's kind.
const sniffed = 4096

// readRanks reads a rank file. It recognises other kinds of files by their content.
func readRanks(path string) (*vocab.Vocabulary, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unopened(err)
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, sniffed)
	head, err := in.Peek(sniffed)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, unopened(err)
	}
	if what, cure := unreadable(head); what != "" {
		return nil, wrongFile("it is "+what, cure)
	}
	v, err := vocab.ReadTiktoken(in)
	if err != nil {
		e := wrongFile(err.Error(), "restore the file: each line is a token in base64, a space and its rank")
		e.Cause = err
		return nil, e
	}
	return v, nil
}

func wrongFile(reason, cure string) *Error { return &Error{Key: "path", Reason: reason, Cure: cure} }

func unopened(err error) error {
	e := wrongFile(err.Error(), "let this user read the file, repair its disk or mount, or name a copy of it")
	e.Cause = err
	var p *fs.PathError
	if errors.As(err, &p) {
		e.Reason = p.Op + ": " + p.Err.Error()
	}
	if errors.Is(err, fs.ErrNotExist) {
		e.Reason = "no such file"
		e.Cure = "write the path of a rank file, relative to the mixture file; a Hugging Face model is not read by " +
			"its name: " + cureHub
	}
	return e
}

// Cures for files of other kinds.
const (
	cureHub = "download its tokenizer.json or its rank file " +
		"(original/tokenizer.model of Llama 3 and 4, qwen.tiktoken of Qwen)"
	cureFile = "write the path of a tokenizer.json, of a model's directory, or of a rank file, " +
		"or `name:` with gpt2, r50k_base, cl100k_base or o200k_base"
	cureSave = "save the tokenizer again with transformers"
)

// unreadable returns the kind of a file that is not read, by its first bytes, and the cure. It returns "" for a file
// that may have ranks.
func unreadable(head []byte) (what, cure string) {
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	switch {
	case len(text) == 0:
		return "empty", "restore the file"
	case bytes.HasPrefix(text, []byte("version https://git-lfs")):
		return "a pointer of Git LFS in place of the file", "fetch the file: git lfs pull"
	case bytes.HasPrefix(text, []byte("#version:")):
		return "a list of merges (merges.txt), which is half of a tokenizer", "write the path of its directory"
	case text[0] != '{':
		return "", ""
	}
	return "JSON without the keys of a tokenizer.json", cureFile
}

// isTekken reports whether a file begins as the Tekken files of Mistral do. Their keys may be in any order.
func isTekken(head []byte) bool {
	return bytes.Contains(head, []byte(`"default_num_special_tokens"`)) || bytes.Contains(head, []byte(`"token_bytes"`))
}

// isSentencePiece reports whether a file begins as sentencepiece_model.proto defines it: with a piece, which is a text
// and its score. See https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
func isSentencePiece(head []byte) bool {
	piece, rest, ok := bytesField(head, 0x0a)
	if !ok || len(rest) == 0 || rest[0] != 0x0a {
		return false
	}
	_, score, ok := bytesField(piece, 0x0a)
	return ok && len(score) >= 5 && score[0] == 0x15
}

// bytesField cuts a field with this tag and its length off a protobuf message.
func bytesField(message []byte, tag byte) (value, rest []byte, ok bool) {
	if len(message) == 0 || message[0] != tag {
		return nil, nil, false
	}
	length, n := binary.Uvarint(message[1:])
	if n <= 0 || length > uint64(len(message)-1-n) {
		return nil, nil, false
	}
	end := 1 + n + int(length)
	return message[1+n : end], message[end:], true
}

// Error is a reason why a tokenizer cannot be used.
type Error struct {
	Key    string // key of the mixture file's tokenizer to which the reason belongs
	Reason string
	Cure   string
	Cause  error // of a file that could not be read; nil: the file or the spec is wrong
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func (e *Error) Error() string { return fmt.Sprintf("%s; %s", e.Reason, e.Cure) }

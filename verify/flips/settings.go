package main

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"millrace"
	"millrace/app/config"
	"millrace/sources"
	"millrace/text/chat"
	"millrace/text/chat/jinja"
	"millrace/text/tokenize"
)

// setting is a file that a run reads before its data: of a tokenizer, a chat template, or a mixture.
type setting struct {
	name string // KIND/NAME
	file string // its path, whose name decides how it is read
	b    []byte
	read func(path string) (result string, err error)
	want string // the result of the whole file
}

// loadSettings returns the settings of the repository at root.
func loadSettings(root string) (all []*setting, err error) {
	add := func(name, file string, b []byte, read func(string) (string, error)) {
		all = append(all, &setting{name: name, file: file, b: b, read: read})
	}
	in := func(path string) []byte {
		b, failed := os.ReadFile(filepath.Join(root, path))
		err = errors.Join(err, failed)
		return b
	}
	for _, name := range []string{"plain", "added"} {
		b := in("text/tokenize/testdata/hf/" + name + "/tokenizer.json")
		add("tokenizer/"+name, "tokenizer.json", b, readTokenizer)
	}
	add("tokenizer/ranks", "x.tiktoken", byteRanks(), readTokenizer)
	models, failed := readModels(in("text/tokenize/internal/oracletest/models.tar.zst"))
	err = errors.Join(err, failed)
	for _, name := range []string{"bpe_llama", "bpe_unused"} {
		add("tokenizer/"+name, "tokenizer.model", models[name+".model"], readTokenizer)
	}
	add("template/chatml", "x.jinja", []byte(chat.ChatML), readTemplate)
	var file struct{ Templates map[string]string }
	err = errors.Join(err, json.Unmarshal(in("text/chat/jinja/testdata/templates.json"), &file))
	for _, name := range sortedKeys(file.Templates) {
		add("template/"+name, "x.jinja", []byte(file.Templates[name]), readTemplate)
	}
	for _, name := range []string{"mixture", "curriculum", "finetune", "pretrain"} {
		add("mixture/"+name, "x.yaml", in("examples/"+name+".yaml"), readMixture)
	}
	return all, err
}

// byteRanks returns a rank file of all bytes and two merges.
func byteRanks() []byte {
	var b bytes.Buffer
	for i := range 256 {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
	}
	b.WriteString("YWI= 256\nYWJj 257\n")
	return b.Bytes()
}

// readModels returns the files of an archive.
func readModels(packed []byte) (map[string][]byte, error) {
	z, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	all := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if all[filepath.Base(h.Name)], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

// readTokenizer returns the ids of a text.
func readTokenizer(path string) (string, error) {
	spec := tokenize.Spec{Path: path}
	if strings.HasSuffix(path, ".tiktoken") {
		spec.Pattern = "gpt2"
	}
	e, err := tokenize.Open(spec)
	if err != nil {
		return "", err
	}
	ids := e.Append(nil, []byte("The quick  brown fox, ünï\n\tcode <s> 1234 日本語 abc"), func() {})
	if slices.ContainsFunc(ids, func(id uint32) bool { return int(id) >= e.VocabSize() }) {
		return "", faulty("an id of %v is beyond the vocabulary of %d", ids, e.VocabSize())
	}
	return fmt.Sprint(ids), nil
}

// readTemplate returns a rendered conversation. The error of a template may leave out its file: the mixture file that
// names it adds the name.
func readTemplate(path string) (string, error) {
	source, err := chat.ReadTemplate(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	t, err := jinja.Parse(source)
	if err != nil {
		return "", faulty("ReadTemplate takes a template that Parse refuses: %v", err)
	}
	turn := func(role, text string) any {
		return jinja.Object{Keys: []string{"role", "content"}, Values: []any{role, text}}
	}
	got, err := t.Render([]jinja.Value{
		{Name: "messages", Value: []any{turn("user", "a"), turn("assistant", "b")}, Origin: 2, Count: true},
		{Name: "bos_token", Value: "<s>"}, {Name: "eos_token", Value: "</s>"}, {Name: "tools"},
		{Name: "add_generation_prompt", Value: false},
	})
	if err != nil {
		return "", fmt.Errorf("render %s: %w", path, err)
	}
	return string(got.Runes), nil
}

// readMixture returns the whole configuration.
func readMixture(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	c, err := config.Parse(path, b, "")
	if err != nil {
		return "", err
	}
	text, err := c.MarshalResolved()
	return string(text), err
}

// lay writes the file below dir and reads it whole.
func (s *setting) lay(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	s.file = filepath.Join(dir, s.file)
	if err := os.WriteFile(s.file, s.b, 0o644); err != nil {
		return err
	}
	s.want, err = s.read(s.file)
	if err != nil && strings.HasPrefix(s.name, "template/") && errors.Is(err, millrace.ErrBadSample) {
		err = nil // a template that wants other messages
	}
	return err
}

func (s *setting) id() string { return s.name }

func (s *setting) kind() string { return strings.SplitN(s.name, "/", 2)[0] }

// play damages the file, reads it twice, and restores it. Any error that names the file is allowed.
func (s *setting) play(rng *rand.Rand) (v verdict, path, what, why string) {
	hurt, what := hurt(rng, s.b)
	path = filepath.Base(s.file)
	if err := os.WriteFile(s.file, hurt, 0o644); err != nil {
		return broken, path, what, err.Error()
	}
	defer os.WriteFile(s.file, s.b, 0o644)
	limits := watch(s.name + ": " + what)
	got, err := s.fenced()
	again, errAgain := s.fenced()
	var rule fault
	var panicked *sources.PanicError
	n := limits.end() / 2
	switch {
	case n > mostAllocated:
		return broken, path, what, fmt.Sprintf("a reading allocated %d MiB", n>>20)
	case errors.As(err, &rule):
		return broken, path, what, err.Error()
	case errors.As(err, &panicked):
		return broken, path, what, err.Error() + "\n" + string(panicked.Stack)
	case got != again || text(err) != text(errAgain):
		return broken, path, what, fmt.Sprintf("the first time %.100s, %v, the second time %.100s, %v", got, err, again,
			errAgain)
	case err != nil && !strings.Contains(err.Error(), s.file):
		return broken, path, what, "the error does not name the file: " + err.Error()
	case err != nil:
		return failed, path, what, ""
	case got == s.want:
		return equal, path, what, ""
	}
	return changed, path, what, ""
}

// fenced reads the file and returns a panic as an error.
func (s *setting) fenced() (got string, err error) {
	err = sources.Fence(millrace.ErrDamaged, func() string { return s.file }, func() error {
		got, err = s.read(s.file)
		return err
	})
	return got, err
}

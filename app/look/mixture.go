package look

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace"
	"millrace/app/config"
	"millrace/app/report"
	"millrace/text/tokenize"
)

// source is one source of the mixture file that is written.
type source struct {
	name, path string
	files      int
	bytes      int64
	place      *place
	first      *File
	choice
}

// WriteMixture writes a commented mixture file for paths of data, one source each, and of a model directory or a
// tokenizer's file. Paths are relative to the directory of the mixture file, the current one. A source that would not
// train on its records as they mean it is commented out. The warnings name such sources, and those whose first file
// does not pass `millrace check`. If no source is left, that is an error.
func WriteMixture(ctx context.Context, w io.Writer, paths []string) (warnings []string, err error) {
	var all []*source
	tokenizer := ""
	for _, path := range paths {
		if isTokenizer(path) {
			tokenizer = path
			continue
		}
		s, err := sourceOf(ctx, path, all)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"write a mixture file: no path has data; name files, directories or patterns of documents")
	}
	refused := 0
	for _, s := range all {
		if s.settle(tokenizer); s.refusal == "" {
			if problem := s.prove(ctx, tokenizer); problem != "" {
				s.say("`millrace check` refuses its first file: " + problem)
				warnings = append(warnings, s.path+": "+problem)
			}
			continue
		}
		refused++
		warnings = append(warnings, s.path+": its source is commented out: "+s.refusal)
	}
	if refused == len(all) {
		return warnings[1:], millrace.Errorf(millrace.ErrInvalid, "write a mixture file: no source would train on its "+
			"records as they mean it: %s", warnings[0])
	}
	return warnings, write(w, all, tokenizer)
}

// isTokenizer reports whether a path is a model directory, or the file of a tokenizer.
func isTokenizer(path string) bool {
	names := []string{"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "tekken.json", "tiktoken.model"}
	for _, name := range names {
		if filepath.Base(path) == name {
			return true
		}
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			return true
		}
	}
	entries, _ := os.ReadDir(path) // none if it is no directory
	return strings.HasSuffix(path, ".tiktoken") || slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
		return strings.HasSuffix(entry.Name(), ".tiktoken")
	})
}

// sourceOf looks at the files of one path.
func sourceOf(ctx context.Context, path string, before []*source) (*source, error) {
	p, err := placeOf(path)
	if err != nil {
		return nil, err
	}
	s := &source{name: nameOf(path, before), path: path, files: len(p.found.Files), place: p}
	if s.bytes, err = p.bytes(); err != nil {
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	if s.first, err = p.describe(ctx); err != nil {
		return nil, err
	}
	s.choice = s.first.choose()
	return s, nil
}

// nameOf returns a source's name by its path, different from those before.
func nameOf(path string, before []*source) string {
	path, _, _ = strings.Cut(filepath.ToSlash(filepath.Clean(path)), "*")
	base, _, _ := strings.Cut(filepath.Base(strings.TrimSuffix(path, "/")), ".")
	var b strings.Builder
	for _, r := range strings.ToLower(base) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			b.WriteRune(r)
		}
	}
	name := strings.Trim(b.String(), "-_0123456789")
	if name == "" {
		name = "data"
	}
	for n, free := 2, name; ; n++ {
		taken := false
		for _, s := range before {
			taken = taken || s.name == free
		}
		if !taken {
			return free
		}
		free = fmt.Sprintf("%s-%d", name, n)
	}
}

// settle takes ChatML if no tokenizer gives a chat template, and refuses keys that the mixture file does not have.
func (s *source) settle(tokenizer string) {
	if s.refusal != "" || len(s.keys) == 0 || s.parses(tokenizer) {
		return
	}
	if i := slices.Index(s.keys, tokenizersTemplate); i >= 0 {
		s.keys[i] = "template: chatml"
		tools := s.fields["tools"]
		switch isValid := s.parses(tokenizer); {
		case isValid && tools != "":
			s.refusal = "they have tools in `" + tools + "`, and the tokenizer has no chat template that reads " +
				"tools: name your model's directory as its path, or write `unused: [" + plain(tools) +
				"]` in place of `tools`"
			return
		case isValid:
			s.say("the tokenizer has no chat template: name your model's directory as its path, or keep ChatML")
			return
		}
		s.keys[i] = tokenizersTemplate
	}
	s.refusal = "they ask for `" + strings.Join(s.keys, ", ") + "`, which this version does not read"
}

// parses reports whether a mixture file with the source is valid.
func (s *source) parses(tokenizer string) bool {
	return isValid(s.alone(s.path, tokenizer, ".millrace"))
}

// isValid reports whether a text is a mixture file.
func isValid(text string) bool {
	_, err := config.Parse("mixture.yaml", []byte(text), ".")
	return err == nil
}

// line returns the source as the mixture file has it.
func (s *source) line() string {
	return s.lineOf(s.path)
}

// lineOf returns the source with another path. Only the source's own path has parts.
func (s *source) lineOf(path string) string {
	keys := []string{"path: " + quotePath(path), "format: " + s.place.format}
	if path == s.path {
		keys = append(keys, s.place.keys...)
	}
	keys = append(keys, s.keys...)
	return s.name + ": {" + strings.Join(keys, ", ") + "}"
}

// quotePath returns a path as YAML has it.
func quotePath(path string) string { return fmt.Sprintf("%q", filepath.ToSlash(path)) }

// share returns a weight from the size of a source: at least one hundredth.
func (s *source) share(total int64) string {
	return fmt.Sprintf("%.2f", max(float64(s.bytes)/float64(max(total, 1)), 0.01))
}

// write writes the file.
func write(w io.Writer, all []*source, tokenizer string) error {
	total := int64(0)
	for _, s := range all {
		total += s.bytes
	}
	head := "# Written by millrace init. Read it, then run `millrace check` on it.\nversion: 1\nseed: 1\n"
	var b strings.Builder
	b.WriteString("sequence_length: 2048       # tokens in a row\n" +
		"global_batch_size: 8        # rows in one optimizer step, over all ranks\n" +
		"stop: {epochs: 1}           # every document once; without it the run is endless\n\n" +
		"mixture:\n  weights:                  # by the sizes of the files; change them to your mixture\n")
	for _, s := range all {
		fmt.Fprintf(&b, "    %s%s: %s\n", s.hidden(), s.name, s.share(total))
	}
	b.WriteString("\nsources:\n")
	for _, s := range all {
		s.write(&b)
	}
	if tokenizer != "" || !isValid(head+b.String()) { // files of ids need none
		head += tokenizerLine(tokenizer)
	}
	_, err := io.WriteString(w, head+b.String())
	return err
}

// hidden returns the mark of a comment for a source that is commented out.
func (s *source) hidden() string {
	if s.refusal != "" {
		return "# "
	}
	return ""
}

// write writes the source with all that is to be said about it.
func (s *source) write(b *strings.Builder) {
	comments := slices.Concat([]string{s.about()}, s.place.notes, s.notes)
	if s.refusal != "" {
		comments = append(comments, "commented out, because its records would not be trained on as they mean it: "+
			s.refusal)
	}
	for _, line := range append(comments, s.first.unused(&s.choice)...) {
		fmt.Fprintf(b, "  # %s\n", strings.Join(strings.Fields(line), " "))
	}
	fmt.Fprintf(b, "  %s%s\n", s.hidden(), s.line())
}

// about describes the files and the fields of a source in one line.
func (s *source) about() string {
	text := fmt.Sprintf("%d files, %s", s.files, report.Size(s.bytes))
	if s.files == 1 {
		text = "1 file, " + report.Size(s.bytes)
	}
	if n := s.first.Records; n != nil {
		text += ", " + report.Count(*n) + " records"
		if s.files > 1 {
			text += " in the first"
		}
	}
	if len(s.first.Fields) > 0 {
		text += "; fields: " + s.first.fieldNames()
	}
	if !s.first.Random {
		text += "; read in blocks order, globally with `seekable_copies: true`"
	}
	return strings.Join(strings.Fields(text), " ")
}

// tokenizerLine returns the line of the tokenizer: that of the path, if this program reads it.
func tokenizerLine(path string) string {
	if path == "" {
		return "tokenizer: {name: gpt2}     # the tokenizer of your model; `path:` names its directory or file\n"
	}
	if _, err := tokenize.Open(tokenize.Spec{Path: path}); err != nil {
		return "# " + path + " is not read: " + strings.Join(strings.Fields(err.Error()), " ") +
			"\ntokenizer: {name: gpt2}\n"
	}
	return "tokenizer: {path: " + quotePath(path) + "}\n"
}

package tokenize

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"millrace/text/tokenize/internal/hf"
	"millrace/text/tokenize/internal/normal"
	"millrace/text/tokenize/internal/split"
	"millrace/text/tokenize/internal/vocab"
)

// The vocabularies are packed by vocabgen; each holds only bytes and merges.
//
//go:generate go run ./internal/vocabgen vocabularies
//go:embed vocabularies/*.vocab
var vocabularies embed.FS

// Spec names the tokenizer to open. Exactly one of Name and Path is set.
type Spec struct {
	Name string // of an embedded vocabulary: gpt2 (which is r50k_base), r50k_base, cl100k_base or o200k_base
	// Path of a rank file, which has a token in base64, a space and its rank on each line, of a SentencePiece model, of
	// a Tekken file, of a Hugging Face tokenizer.json, or of a model's directory with one of them.
	Path string

	// Facts that a rank file does not have. They replace the known ones.
	Pattern  string            // a name that [split.Parse] knows, or a regular expression
	Specials map[string]uint32 // all special tokens
	BOS, EOS string            // keys of Specials

	NeedBOS, NeedEOS bool // an error if there is none

	beside *hf.Beside // of the files in the directory of Path; nil: they do not count
}

// Open returns the tokenizer of a spec. A built-in one takes some ten milliseconds, and a tokenizer.json with 150,000
// tokens 0.7 s. A mistake in the spec or its file is an
// [Error].
func Open(s Spec) (*Encoding, error) {
	e, err := open(s)
	var wrong *Error
	switch {
	case errors.As(err, &wrong) && s.Path != "":
		wrong.Reason = fmt.Sprintf("open tokenizer %s: %s", s.Path, wrong.Reason)
		return nil, wrong
	case err != nil:
		return nil, fmt.Errorf("open tokenizer %s: %w", s.Name+s.Path, err)
	}
	return e, nil
}

// Load returns an embedded encoding by its name.
func Load(name string) (*Encoding, error) { return Open(Spec{Name: name}) }

func open(s Spec) (*Encoding, error) {
	if info, err := os.Stat(s.Path); s.Path != "" && err == nil && info.IsDir() {
		return s.openDirectory()
	}
	return s.openFile()
}

// openFile returns the encoding of a file, by its content, or of a name.
func (s *Spec) openFile() (*Encoding, error) {
	if s.Path != "" {
		if m, err := readSentencePiece(s.Path); err != nil {
			return nil, err
		} else if m != nil {
			return s.openSentencePiece(m)
		}
		if t, err := hf.ReadFile(s.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, refused(err)
		} else if t != nil {
			return s.openHF(t)
		}
		if content, err := hf.ReadJSON(s.Path, isTekken); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, refused(err)
		} else if content != nil {
			return s.openTekken(content)
		}
	}
	v, known, err := find(*s)
	if err != nil {
		return nil, err
	}
	d, err := s.define(v, known)
	if err != nil {
		return nil, err
	}
	return newEncoding(d, v)
}

// openTekken returns the encoding of a Tekken file.
func (s *Spec) openTekken(content []byte) (*Encoding, error) {
	t, err := vocab.ParseTekken(content)
	if err != nil {
		return nil, wrongFile("read the Tekken file: "+err.Error(), "restore the file from its publisher")
	}
	if s.Pattern != "" {
		return nil, &Error{Key: "pattern", Reason: "a Tekken file has its own pattern", Cure: "remove `pattern:`"}
	}
	d := definition{name: s.fileName(), specials: t.Specials, bos: "<s>", eos: "</s>"}
	if err := d.setPattern(t.Pattern); err != nil {
		return nil, err
	}
	if err := s.completeRanks(&d, t.Vocabulary); err != nil {
		return nil, err
	}
	if s.Specials != nil {
		d.dropAbsent(s.Specials)
	}
	if err := checkSpecials(d.specials, "a token of the file has it", ownerIn(t.Vocabulary)); err != nil {
		return nil, err
	}
	if err := s.marks(&d); err != nil {
		return nil, err
	}
	return newEncoding(&d, t.Vocabulary)
}

// find returns the vocabulary of a spec, with its definition if it is a known one.
func find(s Spec) (*vocab.Vocabulary, *definition, error) {
	if s.Path == "" {
		return embedded(s.Name)
	}
	v, err := readRanks(s.Path)
	if err != nil {
		return nil, nil, err
	}
	ranks, err := digestRanks(v)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range definitions() {
		if d.ranks == ranks {
			return v, &d, nil
		}
	}
	return v, nil, nil
}

func embedded(name string) (*vocab.Vocabulary, *definition, error) {
	var names []string
	for _, d := range definitions() {
		if d.file == "" {
			continue
		}
		names = append(names, d.name)
		if d.name != name {
			continue
		}
		packed, err := vocabularies.ReadFile("vocabularies/" + d.file + ".vocab")
		if err != nil {
			return nil, nil, err
		}
		v, err := vocab.Unpack(packed)
		return v, &d, err
	}
	return nil, nil, &Error{Key: "name", Reason: fmt.Sprintf("there is no tokenizer %q", name),
		Cure: "write " + strings.Join(names, ", ") + ", or the path of a rank file"}
}

// define completes the known definition, which may be nil, by the spec.
func (s *Spec) define(v *vocab.Vocabulary, known *definition) (*definition, error) {
	d := definition{name: s.fileName()}
	if known != nil {
		d = *known
	}
	if err := s.completeRanks(&d, v); err != nil {
		return nil, err
	}
	if known == nil {
		if err := s.lacks(&d, v); err != nil {
			return nil, err
		}
	}
	if s.Pattern != "" {
		if err := d.setPattern(s.Pattern); err != nil {
			return nil, err
		}
	}
	if s.Specials != nil {
		d.specials = s.Specials
	}
	if err := checkSpecials(d.specials, fmt.Sprintf("the ranks end at %d", v.Len()-1), ownerIn(v)); err != nil {
		return nil, err
	}
	if err := s.marks(&d); err != nil {
		return nil, err
	}
	if known != nil && !d.isAsKnown(known) {
		d.fingerprint = ""
	}
	return &d, nil
}

// completeRanks completes the special tokens of a rank file or a Tekken file.
func (s *Spec) completeRanks(d *definition, v *vocab.Vocabulary) error {
	if s.beside == nil {
		return nil
	}
	if err := s.beside.CheckPrefix(false); err != nil {
		return refused(err)
	}
	owner := ownerIn(v)
	return s.complete(d, v.Len(), func(id uint32) (string, bool) { return string(owner("", id)), false })
}

// lacks returns an error if the spec of an unknown rank file lacks a needed fact. The definition has those of the files
// beside it.
func (s *Spec) lacks(d *definition, v *vocab.Vocabulary) error {
	var missing []string
	if s.Pattern == "" {
		missing = append(missing, "pattern")
	}
	needsBOS, needsEOS := s.NeedBOS && d.bos == "", s.NeedEOS && d.eos == ""
	if needsBOS && s.BOS == "" {
		missing = append(missing, "bos")
	}
	if needsEOS && s.EOS == "" {
		missing = append(missing, "eos")
	}
	if len(missing) == 0 {
		return nil
	}
	more := ""
	if len(d.specials) == 0 {
		more = fmt.Sprintf(", specials: {%q: %d}", endOfText, v.Len())
	}
	if needsEOS {
		more += `, eos: "<|endoftext|>"`
	}
	if needsBOS {
		more += `, bos: "<|endoftext|>"`
	}
	return &Error{Key: "path",
		Reason: fmt.Sprintf("its %d ranks are not those of a known vocabulary, and a rank file does not contain its %s",
			v.Len(), strings.Join(missing, " and ")),
		Cure: fmt.Sprintf("write the publisher's beside `path:`, as `pattern: cl100k%s` (docs/tokenizers.md)", more)}
}

// checkSpecials refuses ids of tokens that are not special, and ids that two tokens share. owner returns the token
// that keeps a text from being the special token of an id; it is empty if there is none.
func checkSpecials(specials map[string]uint32, cure string, owner func(text string, id uint32) []byte) error {
	return checkIDs(specials, func(text string, id uint32) error {
		if of := owner(text, id); len(of) > 0 {
			return wrongSpecial("write the publisher's ids; "+cure,
				"the id of %q is %d, which is that of %q", text, id, of)
		}
		return nil
	})
}

// checkIDs refuses ids that two special tokens share, ids above all vocabularies, and those that check refuses.
func checkIDs(specials map[string]uint32, check func(text string, id uint32) error) error {
	byID := map[uint32]string{}
	for _, text := range slices.Sorted(maps.Keys(specials)) {
		id := specials[text]
		if first, taken := byID[id]; taken {
			return wrongSpecial("give each token its own id", "id %d belongs to %q and to %q", id, first, text)
		}
		if id >= vocab.MaxTokens {
			return wrongSpecial(fmt.Sprintf("write one below %d", vocab.MaxTokens), "the id of %q is %d", text, id)
		}
		if err := check(text, id); err != nil {
			return err
		}
		byID[id] = text
	}
	return nil
}

// ownerIn returns the tokens of a vocabulary by their ids, for [checkSpecials].
func ownerIn(v *vocab.Vocabulary) func(string, uint32) []byte {
	return func(_ string, id uint32) []byte {
		if int64(id) < int64(v.Len()) {
			return v.Token(id)
		}
		return nil
	}
}

func wrongSpecial(cure, reason string, args ...any) *Error {
	return &Error{Key: "specials", Reason: fmt.Sprintf(reason, args...), Cure: cure}
}

// marks sets bos and eos of a definition.
func (s *Spec) marks(d *definition) error {
	if err := s.mark("bos", s.BOS, s.NeedBOS, &d.bos, d); err != nil {
		return err
	}
	return s.mark("eos", s.EOS, s.NeedEOS, &d.eos, d)
}

// mark sets bos or eos of a definition.
func (s *Spec) mark(key, given string, needed bool, to *string, d *definition) error {
	if given != "" {
		*to = given
	}
	if *to == "" {
		if needed {
			return &Error{Key: "add_" + key, Reason: d.name + " has no " + key + " token",
				Cure: fmt.Sprintf("write `%s:` with one of its special tokens, or `add_%s: false`", key, key)}
		}
		return nil
	}
	if _, ok := d.specials[*to]; !ok {
		return &Error{Key: key,
			Reason: fmt.Sprintf("%s is %q, which is none of the special tokens%s", key, *to, some(d.specials)),
			Cure:   fmt.Sprintf("write `specials: {%q: …}` with its id", *to)}
	}
	return nil
}

// some returns a few special tokens in the order of their ids, for an error.
func some(specials map[string]uint32) string {
	if len(specials) == 0 {
		return ": there are none"
	}
	byID := func(a, b string) int { return int(specials[a]) - int(specials[b]) }
	list := slices.SortedFunc(maps.Keys(specials), byID)
	more := ""
	if len(list) > 6 {
		list, more = list[:6], " …"
	}
	return " (" + strings.Join(list, ", ") + more + ")"
}

func newEncoding(d *definition, v *vocab.Vocabulary) (*Encoding, error) {
	sum, err := d.digest(v)
	if err != nil {
		return nil, err
	}
	e := &Encoding{
		name:        d.name,
		stages:      d.stages,
		prefixed:    d.prefixed,
		before:      d.before,
		vocabulary:  v,
		pieces:      newPieceTable(v),
		merges:      newMergeTable(v),
		size:        v.Len(),
		fingerprint: sum,
		lent:        defaultLender(),
	}
	if d.stages == nil {
		e.splitter = split.New(d.pattern)
	}
	if d.nfc {
		e.normal = normal.CurrentC
	}
	e.setSpecials(d)
	return e, nil
}

// setSpecials sets the special tokens of a definition.
func (e *Encoding) setSpecials(d *definition) {
	e.bos, e.eos = mark{d.specials[d.bos], d.bos != ""}, mark{d.specials[d.eos], d.eos != ""}
	e.specials = make(map[uint32]string, len(d.specials))
	for text, id := range d.specials {
		e.specials[id] = text
		e.size = max(e.size, int(id)+1)
	}
}

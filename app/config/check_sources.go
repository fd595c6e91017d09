package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/sources/find"
	"millrace/sources/format/parts/fields"
	"millrace/sources/format/registry"
	"millrace/sources/read/filter"
	"millrace/text/chat"
)

// checkSources checks each source and fills in its format and on_exhausted.
func (v *validator) checkSources() {
	v.checkPieces("long_documents", v.c.LongDocuments)
	for i := range v.c.Sources {
		s := &v.c.Sources[i]
		path := decode.Join("sources", s.Name)
		if at, _ := v.Place(path); at.Kind != tree.Mapping {
			continue
		}
		v.checkPatterns(path, s)
		v.checkExhaustion(path, s)
		v.checkFormat(path, s)
		v.checkContent(path, s)
		v.checkStorage(path, s)
		v.checkFilter(path+".filter", s.Filter, s)
		v.checkPieces(path+".long_documents", s.LongDocuments)
		v.checkText(path+".text", s.Text)
		v.checkChat(path, s)
		v.checkIDs(path, s)
		v.checkFields(path, "fields", s, s.Fields)
		v.checkFields(path, "unused", s, s.Unused)
		if v.Sound(path+".format", "tokenizer") && s.Format != "" && s.HoldsText() && v.c.Tokenizer == nil {
			v.wrongKey(
				path, "source "+tree.Quote(s.Name)+" holds text, and there is no `tokenizer`",
				"add `tokenizer: {name: gpt2}` at the top level",
			)
		}
	}
}

// checkContent checks the keys that describe files which do not describe themselves.
func (v *validator) checkContent(path string, s *Source) {
	if s.Format == "" || !v.Sound(path+".format", path+".config", path+".split", path+".dtype", path+".eos",
		path+".record", path+".truncated") {
		return
	}
	refuse := func(key, of, cure string) {
		if _, given := v.Place(path + "." + key); given {
			v.wrong(path+"."+key, "`"+key+"` is for "+of+", and the format is "+string(s.Format),
				"leave it out, or "+cure)
		}
	}
	if s.Format == registry.Lengths {
		refuse("split", "directories of a data set", "name the file of the split")
		refuse("config", "directories of a data set", "name the file of the configuration")
	}
	if !s.Format.HoldsPlainIDs() {
		if s.Format != registry.MDS || s.Tokens == "" { // ids may be in a column of bytes
			refuse("dtype", "files of plain ids", "write `format: tokens`, `olmo` or `datatrove`, or `format: mds` "+
				"with `tokens:`")
		}
		refuse("eos", "files of plain ids", "write `format: tokens`, `olmo` or `datatrove`")
	}
	switch {
	case s.Format == registry.TFRecord && s.Record == "":
		s.Record = "example"
	case s.Format == registry.ArrayRecord && s.Record == "":
		v.wrongKey(path, "source "+tree.Quote(s.Name)+" has records of unknown content",
			"add `record: text`, or `record: example` if each is a tf.train.Example")
	case s.Format == registry.Text && (s.Record == "text" || s.Record == "example"):
		refuse("record", "files of other records if it is `"+s.Record+"`", "write `file`, `line` or `paragraph`")
	case s.Format == registry.Text:
	case s.Format != registry.TFRecord && s.Format != registry.ArrayRecord:
		refuse("record", "records without fields", "write `format: arrayrecord`, `tfrecord` or `text`")
	case s.Record != "text" && s.Record != "example":
		refuse("record", "text files if it is `"+s.Record+"`", "write `text` or `example`")
	}
	if s.Format != registry.WebDataset {
		refuse("truncated", "tar archives", "write `format: webdataset`")
	}
}

// checkText checks the field of a text, or its template. path is that of its key.
func (v *validator) checkText(path, text string) {
	if !v.Sound(path) {
		return
	}
	names := []string{text}
	if fields.IsTemplate(text) {
		t, err := fields.ParseTemplate(text)
		if err != nil {
			v.wrong(path, "this template cannot be read: "+err.Error(),
				"write fields in braces, as \"{title}\\n\\n{body}\", and `{{` for a brace of the text")
			return
		}
		names = t.Fields()
	}
	for _, name := range names {
		if name == "" || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") {
			v.wrong(
				path, "`"+path[strings.LastIndexByte(path, '.')+1:]+"` names an empty field: "+tree.Quote(text),
				"write the names of the fields with single dots between them, as `meta.body`",
			)
			return
		}
	}
}

// checkIDs checks the columns of token ids, of their mask and of the starts of sequences.
func (v *validator) checkIDs(path string, s *Source) {
	if !v.Sound(path+".tokens", path+".mask", path+".labels", path+".starts", path+".format") {
		return
	}
	_, hasText := v.Place(path + ".text")
	switch {
	case s.Mask != "" && s.Tokens == "":
		v.wrong(path+".mask", "`mask` has no `tokens` beside it", "write the field of the ids as `tokens: input_ids`")
	case s.Labels != "" && s.Tokens == "":
		v.wrong(path+".labels", "`labels` has no `tokens` beside it",
			"write the field of the ids as `tokens: input_ids`")
	case s.Labels != "" && s.Mask != "":
		v.wrong(path+".labels", "`labels` and `mask` both say which tokens are trained on", "leave one of them out")
	case s.Starts != "" && s.Tokens == "":
		v.wrong(path+".starts", "`starts` has no `tokens` beside it",
			"write the field of the ids as `tokens: input_ids`")
	case s.Tokens == "":
	case hasText:
		v.wrong(path+".tokens", "a document is made of `text` or of `tokens`, not of both", "leave one of them out")
	case s.Format != "" && !s.Format.HoldsText():
		v.wrong(path+".tokens", "the records of format "+string(s.Format)+" have no fields", "leave `tokens` out")
	}
	for _, x := range [][2]string{{"tokens", s.Tokens}, {"mask", s.Mask}, {"labels", s.Labels},
		{"starts", s.Starts}} {
		if _, err := fields.Parse(x[1]); x[1] != "" && err != nil {
			v.wrong(path+"."+x[0], "`"+x[0]+"` names an empty field: "+tree.Quote(x[1]),
				"write the names of the fields with single dots between them, as `meta.ids`")
		}
	}
	if s.Starts != "" {
		v.checkApart(path+".starts", "the sequences of packed documents")
	}
}

// checkApart checks the settings of segments that follow each other without padding: a batch's build finds their ends.
func (v *validator) checkApart(key, what string) {
	switch {
	case v.c.PadMultiple > 1:
		v.wrongKey(key, fmt.Sprintf("%s need pad_multiple 1, not %d: they are found when a batch is built", what,
			v.c.PadMultiple), "leave `pad_multiple` and `parallelism.cp` out")
	case v.c.SplitDocuments != nil:
		v.wrongKey(key, what+" cannot be split over ranks", "leave `split_documents` out")
	}
}

// checkFields checks a list of fields. key is that of the list.
func (v *validator) checkFields(path, key string, s *Source, names []string) {
	if len(names) > 0 && s.Format != "" && !s.Format.HoldsText() {
		v.wrong(path+"."+key, "the records of format "+string(s.Format)+" have no fields", "leave `"+key+"` out")
		return
	}
	for i, name := range names {
		at := fmt.Sprintf("%s.%s[%d]", path, key, i)
		if _, err := fields.Parse(name); err != nil {
			v.wrong(at, "`"+key+"` names an empty field: "+tree.Quote(name),
				"write the names of the fields with single dots between them, as `meta.url`")
		} else if slices.Contains(names[:i], name) {
			v.wrong(at, "`"+key+"` names "+tree.Quote(name)+" twice", "leave one of them out")
		}
	}
}

// checkChat checks the keys of conversations and pairs, and reads the chat template.
func (v *validator) checkChat(path string, s *Source) {
	if s.Messages == "" && s.Prompt == "" && s.Completion == "" && s.Chosen == "" && s.Rejected == "" {
		return
	}
	for _, key := range []string{"text", "tokens"} {
		if _, given := v.Place(path + "." + key); given {
			v.wrong(path+"."+key, "`"+key+"` stands beside the fields of a conversation or a pair", "keep "+
				"one of them")
			return
		}
	}
	switch {
	case s.Chosen+s.Rejected != "":
		v.checkPairs(path, s)
	case s.Messages != "" && s.Prompt+s.Completion != "":
		v.wrong(path+".messages", "a source has conversations or pairs, not both", "keep `messages`, or "+
			"`prompt` and `completion`")
	case s.Messages == "" && (s.Prompt == "" || s.Completion == ""):
		v.wrongKey(path, "a pair needs `prompt` and `completion`", "name both fields")
	case s.Format != "" && !s.Format.HoldsText():
		v.wrongKey(path, "format "+string(s.Format)+" has tokens, and no conversations", "leave the key out")
	case s.Messages != "":
		v.checkTemplate(path, s)
	default:
		v.checkText(path+".prompt", s.Prompt)
		v.checkText(path+".completion", s.Completion)
		if s.IsRendered() {
			v.checkTemplate(path, s)
			if _, given := v.Place(path + ".train_on"); !given {
				s.TrainOn = chat.Everything // of the completion
			}
		}
	}
}

// checkPairs checks the keys of preference pairs, and the settings that pairs need: a pair is never cut, and its two
// segments follow each other without padding.
func (v *validator) checkPairs(path string, s *Source) {
	_, split := v.Place(path + ".too_long")
	switch {
	case s.Chosen == "" || s.Rejected == "":
		v.wrongKey(path, "a preference pair needs `chosen` and `rejected`", "name both fields")
		return
	case s.Messages+s.Completion+s.Tools != "" || s.TrainOn != chat.Assistant:
		v.wrongKey(path, "`chosen` and `rejected` stand beside `messages`, `completion`, `tools` or `train_on`",
			"keep `chosen`, `rejected`, `prompt` and `template`")
		return
	case s.Format != "" && !s.Format.HoldsText():
		v.wrongKey(path, "format "+string(s.Format)+" has tokens, and no pairs", "leave the key out")
		return
	case split && s.TooLong == "split":
		v.wrong(path+".too_long", "a preference pair cannot be split", "write `truncate` or `drop`")
	default:
		v.checkApart(path, "the segments of preference pairs")
	}
	for _, in := range v.c.AllStages() {
		if in.Packing == millrace.Concat {
			v.wrongKey(path, "packing concat cuts preference pairs", "write `packing: best_fit` or `pad`")
			break
		}
	}
	if !split {
		s.TooLong = "truncate"
	}
	if s.IsRendered() {
		v.checkTemplate(path, s)
	}
}

// checkPieces checks an order of the pieces of long documents against the order of documents.
func (v *validator) checkPieces(path string, how LongDocuments) {
	if how == ShuffledPieces && v.Sound(path, "shuffle") && v.c.Shuffle != millrace.Global {
		v.wrong(
			path, "pieces cannot be shuffled with shuffle "+string(v.c.Shuffle),
			"write `shuffle: global`, or `long_documents: consecutive`",
		)
	}
}

// checkFilter checks the expression of a filter, if there is one.
func (v *validator) checkFilter(path, text string, s *Source) {
	if _, ok := v.Place(path); !ok || !v.Sound(path) {
		return
	}
	f, err := filter.Compile(text)
	switch {
	case err != nil:
		v.wrong(path, "this filter cannot be read: "+err.Error(),
			"write a comparison of fields, as `quality > 0.5 && language == \"en\"`")
	case len(f.Fields()) > 0 && s.Format != "" && !s.Format.HoldsText():
		v.wrong(
			path,
			"this filter asks for "+tree.Quote(
				f.Fields()[0],
			)+", and the documents of format "+string(
				s.Format,
			)+" have tokens and no fields",
			"ask for `tokens` alone",
		)
	}
}

func (v *validator) checkPatterns(path string, s *Source) {
	if !v.Sound(path + ".path") {
		return
	}
	for i, p := range s.Path {
		at := path + ".path"
		if _, list := v.Place(fmt.Sprintf("%s[%d]", at, i)); list {
			at = fmt.Sprintf("%s[%d]", at, i)
		}
		if !doublestar.ValidatePattern(p) {
			v.wrong(
				at, "this pattern cannot be read: "+tree.Quote(p),
				"close every `[` and `{`; put a backslash before a character that is meant as itself",
			)
		}
	}
}

// checkStorage checks the place of a store.
func (v *validator) checkStorage(path string, s *Source) {
	if s.Storage == nil || !v.Sound(path+".storage", path+".path") {
		return
	}
	if !s.IsRemote() {
		v.wrongKey(path+".storage", "`storage` is the place of a store, and the path of source "+tree.Quote(s.Name)+
			" is local", "write the path as a URL, as `s3://bucket/prefix/*.parquet`, or leave `storage` out")
	}
	if s.Storage.Endpoint == "" || !v.Sound(path+".storage.endpoint") {
		return
	}
	at, err := url.Parse(s.Storage.Endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil ||
		at.RawQuery != "" {
		v.wrong(path+".storage.endpoint", "`endpoint` is no URL of a service",
			"write it as `https://minio.example:9000`; credentials come from the environment")
	}
}

// checkExhaustion fills in on_exhausted. Under stop.epochs every source has that many passes, so no source may repeat
// or leave earlier. Otherwise max_epochs also bounds the passes of a source that repeats: it leaves after them.
func (v *validator) checkExhaustion(path string, s *Source) {
	if !v.Sound("stop", path+".on_exhausted", path+".max_epochs") {
		return
	}
	epochs := v.c.Epochs()
	said := s.OnExhausted
	if said == "" {
		s.OnExhausted = millrace.Repeat
	}
	if s.OnExhausted == millrace.Repeat && v.c.Passes(s) > 0 {
		s.OnExhausted = millrace.Renormalize
	}
	switch {
	case epochs > 0 && said == millrace.Repeat:
		v.wrong(
			path+".on_exhausted", fmt.Sprintf("`repeat` goes on for ever, but the run stops after %d epochs", epochs),
			"write `renormalize`, `stop` or `error`, or leave `stop.epochs` out",
		)
	case epochs > 0 && s.MaxEpochs > 0 && s.MaxEpochs < epochs:
		v.wrong(path+".max_epochs", fmt.Sprintf("max_epochs %d is below stop.epochs %d", s.MaxEpochs, epochs),
			fmt.Sprintf("leave it out: every source has %d passes, or stop by `steps` or `tokens`", epochs))
	}
}

// checkFormat finds the format of a source that does not name it.
func (v *validator) checkFormat(path string, s *Source) {
	if s.Format != "" || !v.Sound(path+".format", path+".path") || len(s.Path) == 0 {
		return
	}
	format, unclear := find.Format(v.c.Base, s.Path)
	if unclear != nil {
		v.wrong(path+".path", "the format of source "+tree.Quote(s.Name)+" "+unclear.Why, unclear.Cure)
		return
	}
	s.Format = registry.Name(format)
}

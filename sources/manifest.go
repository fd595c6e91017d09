package sources

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"millrace"
	"millrace/sources/facts/growth"
	"millrace/sources/find"
)

// manifestSettings returns the facts that decide the source's samples beside its files, without the seed of its order.
// Of the constants, their names are among the facts: the values follow from the names of the files, which the log of a
// table never gives to other rows.
func (s *Source) manifestSettings() []byte {
	m, spec := &s.manifest, &s.spec
	in := []byte("millrace manifest 1")
	in = appendText(in, settled(spec.Format))
	in = appendText(in, spec.Field.Text)
	if spec.Maker != nil {
		in = appendText(in, spec.Maker.Settings())
	}
	if spec.SkipMissing {
		in = appendText(in, "skip missing")
	}
	for _, name := range s.constants {
		in = appendText(in, "constant "+name)
	}
	in = appendText(in, string(m.Shuffle))
	return binary.LittleEndian.AppendUint64(in, uint64(spec.Limits.SampleBytes))
}

// keepListing keeps the list of the source's files, so that a later run can find out which files came and went. A
// failure does not stop the run.
func (s *Source) keepListing(piece uint32) {
	blocks := s.opener.evidence.blocksKind(s.manifest.Shuffle == millrace.InFileOrder)
	l := growth.Listing{Manifest: s.manifest, Settings: s.manifestSettings(), Blocks: blocks}
	if g := s.pieces.byTokens[piece]; g != nil {
		l.Piece = piece
		for i := range s.manifest.Shards {
			l.Pieces = append(l.Pieces, g.Ordinals(i))
		}
	}
	err := l.Save(s.kept)
	if err == nil {
		err = s.kept.Flush()
	}
	if err != nil {
		s.log.Warn("the list of files is not kept; files that are added later cannot be told from these", "err", err)
	}
}

// KeepPieces counts the pieces of `tokens` tokens in each file, and keeps the list of the files with them, as Open does
// for PieceTokens. It needs the length of every document.
func (s *Source) KeepPieces(ctx context.Context, tokens uint32) error {
	if _, err := s.InPieces(ctx, tokens); err != nil {
		return err
	}
	s.keepListing(tokens)
	return nil
}

// cureOfChanged is the cure for a file with other bytes.
const cureOfChanged = "restore the file, or begin a new run with it"

// cureOfMissing returns the cure for a pinned file that is missing. It may be there and yet not be read: older versions
// read files of its name.
func cureOfMissing(pinned *millrace.Manifest, file *millrace.Shard) string {
	if why := find.LeftOutName(file.Name, pinned.Format); why != "" {
		return "; directories and wildcards pass over it, because " + why + ": add the file itself to the source's " +
			"`path` to read it as before"
	}
	return "; restore it, or resume in a new run directory with override=[\"sources." + pinned.Source +
		".files=mask\"]" + cureOfTable(pinned)
}

// cureOfNew returns the cure for a file that the pinned manifest does not have.
func cureOfNew(pinned, now *millrace.Manifest) string {
	is := make(map[string]bool, len(now.Shards))
	for i := range now.Shards {
		is[now.Shards[i].Name] = true
	}
	gone := slices.IndexFunc(pinned.Shards, func(s millrace.Shard) bool { return !is[s.Name] })
	override := "\"sources." + pinned.Source + ".files=append\""
	others := ""
	if gone >= 0 {
		others = ", and others are missing, as " + pinned.Shards[gone].Name
		override += ", \"sources." + pinned.Source + ".files=mask\""
	}
	return others + "; put it under another source, or resume in a new run directory with override=[" + override + "]" +
		cureOfTable(pinned)
}

// cureOfTable returns the cure for other files if they may be those of a table, whose rows move to new files when they
// are rewritten. Overrides would then read rows again, or never.
func cureOfTable(pinned *millrace.Manifest) string {
	if pinned.Format != "parquet" {
		return ""
	}
	return "; if they are of a Delta table, write its version of that time as `version` of the source instead: rows " +
		"that were rewritten have moved to new files"
}

// Compare returns an error if a source differs from its pinned manifest. The error names the first file that differs,
// and wraps millrace.ErrMismatch.
func Compare(pinned, now *millrace.Manifest) error {
	if pinned.Fingerprint == now.Fingerprint {
		return nil
	}
	differ := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrMismatch, "source %s is not the one the run began with: %s",
			pinned.Source, fmt.Sprintf(format, args...))
	}
	if pinned.Format != now.Format {
		return differ("its format was %s and is %s", pinned.Format, now.Format)
	}
	for i, j := 0, 0; i < len(pinned.Shards) || j < len(now.Shards); i, j = i+1, j+1 {
		switch {
		case j == len(now.Shards) || i < len(pinned.Shards) && pinned.Shards[i].Name < now.Shards[j].Name:
			return differ("file %s is missing (it was at %s)%s", pinned.Shards[i].Name, pinned.Shards[i].Path,
				cureOfMissing(pinned, &pinned.Shards[i]))
		case i == len(pinned.Shards) || pinned.Shards[i].Name > now.Shards[j].Name:
			return differ("file %s is new%s", now.Shards[j].Path, cureOfNew(pinned, now))
		}
		was, is := pinned.Shards[i], now.Shards[j]
		if was.Size != is.Size {
			return differ("file %s had %d bytes and has %d; %s", is.Path, was.Size, is.Size, cureOfChanged)
		}
		if was.Digest != is.Digest {
			return differ("file %s changed its content (digest %s, was %s); %s", is.Path, is.Digest, was.Digest,
				cureOfChanged)
		}
	}
	if pinned.Shuffle == millrace.Blocks && now.Shuffle == millrace.Global {
		return differ("its shuffle was blocks and is global; to go on in blocks order, write `seekable_copies: false`")
	}
	if pinned.Shuffle != now.Shuffle {
		return differ("its shuffle was %s and is %s", pinned.Shuffle, now.Shuffle)
	}
	return differ("its text field, its limits, or the fields that its folders give changed")
}

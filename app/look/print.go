package look

import (
	"fmt"
	"io"
	"strings"

	"millrace/app/report"
)

// Print writes the description of a file for people.
func (d *File) Print(w io.Writer) error {
	count, random := "not counted", "it can only be streamed (see `seekable_copies`)"
	if d.Records != nil {
		count = report.Count(*d.Records) + " records"
	}
	if d.Random {
		random = "random access"
	}
	if d.Grain > 0 {
		random += ", " + report.Size(d.Grain) + " unpacked for a record"
	}
	fmt.Fprintf(w, "%s: %s, %s, %s, %s\n", d.Path, d.Format, report.Size(d.Bytes), count, random)
	if d.Tokens != nil {
		fmt.Fprintf(w, "documents of tokens: %s tokens in the first %d\n", d.Tokens, d.Looked)
	}
	if len(d.Fields) > 0 {
		fmt.Fprintf(w, "fields of the first %d records; LENGTH is bytes of texts and elements of lists\n\n", d.Looked)
		rows := []string{report.Row("FIELD", "PRESENT", "LENGTH", "KIND", "SAMPLE")}
		for i := range d.Fields {
			x := &d.Fields[i]
			length := ""
			if x.Length != nil {
				length = x.Length.String()
			}
			sample := x.Sample
			if x.Images != nil {
				sample = x.Images.String()
			}
			rows = append(rows, report.Row(x.Name, x.Present, length, strings.Join(x.Kinds, "; "), sample))
		}
		if err := report.Table(w, rows...); err != nil {
			return err
		}
	}
	for i := range d.Fields {
		if images := d.Fields[i].Images; images != nil {
			for _, reason := range images.Unread {
				fmt.Fprintf(w, "field %s: %s\n", d.Fields[i].Name, reason)
			}
		}
	}
	for _, b := range d.Bad {
		fmt.Fprintf(w, "record %d cannot be decoded: %s\n", b.Record, b.Reason)
	}
	return nil
}

// String returns the span, as `3…17`.
func (s *Span) String() string {
	if s.Least == s.Most {
		return fmt.Sprint(s.Least)
	}
	return fmt.Sprintf("%d…%d", s.Least, s.Most)
}

package remedy_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"millrace/sources/store/remedy"
)

// TestTheTableOfTheDocs: docs/storage.md has exactly the rows of the code, and no error is in two rows.
func TestTheTableOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| Error | Meaning | Remedy |\n|---|---|---|\n"
	seen := map[syscall.Errno]bool{}
	for _, row := range remedy.Table() {
		var names []string
		for _, e := range row.Errors {
			if seen[e] {
				t.Errorf("%v is in two rows", e)
			}
			seen[e] = true
			names = append(names, "`"+unix.ErrnoName(e)+"`")
			if r, known := remedy.Of(fmt.Errorf("read a: %w", e)); r != row.Remedy || !known {
				t.Errorf("%s has the remedy %q, %v", unix.ErrnoName(e), r, known)
			}
		}
		meaning := row.Meaning
		if row.Remedy == remedy.Final {
			meaning += ": " + row.Cure
		}
		if (row.Cure != "") != (row.Remedy == remedy.Final) {
			t.Errorf("%s has the remedy %q and the cure %q", names[0], row.Remedy, row.Cure)
		}
		want += fmt.Sprintf("| %s | %s | %s |\n", strings.Join(names, ", "), meaning, row.Remedy)
	}
	want += fmt.Sprintf("| any other | | %s |\n", remedy.OfErrno(unix.EXFULL))
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/storage.md lacks this table:\n%s", want)
	}
}

// TestOtherErrors: damage, the end of a file and a closed file are no errors of the kernel.
func TestOtherErrors(t *testing.T) {
	for _, err := range []error{nil, io.EOF, io.ErrUnexpectedEOF, fs.ErrClosed, errors.New("its bytes are wrong")} {
		if r, known := remedy.Of(err); r != remedy.Final || known {
			t.Errorf("%v: %q, %v", err, r, known)
		}
	}
	if r, known := remedy.Of(fs.ErrNotExist); r != remedy.Anew || !known {
		t.Errorf("a missing file: %q, %v", r, known)
	}
}

// TestExplain: a final error of the kernel gets its meaning and cure. Any other error stays as it is.
func TestExplain(t *testing.T) {
	for _, row := range remedy.Table() {
		for _, e := range row.Errors {
			err := fmt.Errorf("read a: %w", e)
			want := err.Error()
			if row.Remedy == remedy.Final {
				want += ": " + row.Meaning + ": " + row.Cure
			}
			if got := remedy.Explain(err); got.Error() != want || !errors.Is(got, e) {
				t.Errorf("%s: %v, want %s", unix.ErrnoName(e), got, want)
			}
		}
	}
	for _, err := range []error{nil, io.EOF, fs.ErrClosed, fs.ErrNotExist, errors.New("its bytes are wrong")} {
		if got := remedy.Explain(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

package exit

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"millrace"
)

func TestStatusOfErrors(t *testing.T) {
	invalid := millrace.Errorf(millrace.ErrInvalid, "no key")
	unread := func(errno syscall.Errno) error {
		return millrace.Errorf(millrace.ErrInvalid, "read: %w", &fs.PathError{Op: "open", Path: "m.yaml", Err: errno})
	}
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"none":                          {nil, Done},
		"any":                           {errors.New("x"), Failed},
		"invalid file":                  {fmt.Errorf("read: %w", invalid), Usage},
		"no such file":                  {unread(syscall.ENOENT), Usage},
		"no file":                       {unread(syscall.EISDIR), Usage},
		"device that fails":             {unread(syscall.EIO), Failed},
		"mount that died":               {unread(syscall.ENOTCONN), Failed},
		"usage of a device that fails":  {Usagef("read the state: %w", unread(syscall.EIO)), Failed},
		"usage of no file":              {Usagef("read the state: %w", unread(syscall.ENOENT)), Usage},
		"no descriptor left":            {unread(syscall.EMFILE), Failed},
		"wrong usage":                   {Usagef("--ranks %d", 0), Usage},
		"failure that wraps invalid":    {Failure(invalid), Failed},
		"joined with a failed write":    {errors.Join(Usagef("x"), errors.New("y")), Usage},
		"full disk":                     {With(NoRoom, errors.New("x")), NoRoom},
		"asked to leave":                {Silent(Asked), Asked},
		"outermost of two":              {Failure(Usagef("x")), Failed},
		"nothing failed":                {Failure(nil), Done},
		"nothing failed, with a status": {With(NoRoom, nil), Done},
	} {
		if got := Status(c.err); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
	if text := Silent(Asked).Error(); text != "" {
		t.Errorf("a silent end has the text %q", text)
	}
}

package vocab

import (
	"bytes"
	"testing"
)

// FuzzReadTiktoken reads rank files. A vocabulary that is read has every byte.
func FuzzReadTiktoken(f *testing.F) {
	f.Add([]byte("AA== 0\nAQ== 1\n"))
	f.Add([]byte("\n\nAA== 2097151\n"))
	f.Add([]byte("YWI= 1 2"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := ReadTiktoken(bytes.NewReader(b)); err == nil && v.Len() < 256 {
			t.Errorf("a vocabulary of %d ids lacks bytes", v.Len())
		}
	})
}

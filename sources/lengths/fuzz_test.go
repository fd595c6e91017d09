package lengths_test

import (
	"regexp"
	"testing"

	"millrace/sources/sourcetest"
)

func FuzzLengths(f *testing.F) {
	for _, s := range []string{"tokens,patches,count\n5,0,2\n7,12,1\n", "# mine\n\ncount, tokens\n3,1\r\n1,2",
		"length,count\n9,2\n", "4\n\n2\n", "{\"tokens\": 3}\n{\"tokens\": 1, \"count\": 2}\n"} {
		f.Add(s)
	}
	many := regexp.MustCompile(`\d{6}`)
	f.Fuzz(func(t *testing.T, text string) {
		if many.MatchString(text) {
			return // counts of so many records take long
		}
		sourcetest.Fuzz(t, format, fixture("fuzz", text))
	})
}

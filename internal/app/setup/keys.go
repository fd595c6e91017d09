package setup

import (
	"strings"

	"millrace"
)

// Classify returns the class of a key of a run's identity.
func Classify(key string) millrace.KeyClass {
	for _, k := range []struct {
		prefix string
		class  millrace.KeyClass
	}{
		{"mixture.unit", millrace.KeyUnit},
		{"mixture", millrace.KeyMixture},
		{"sources", millrace.KeySource},
		{"stop.epochs", millrace.KeyEnd},
		{"version", millrace.KeyDocuments},
		{"seed", millrace.KeyDocuments},
		{"shuffle", millrace.KeyDocuments},
		{"tokenizer", millrace.KeyDocuments},
		{"limits", millrace.KeyDocuments},
	} {
		if rest, ok := strings.CutPrefix(key, k.prefix); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return k.class
		}
	}
	return millrace.KeySteps
}

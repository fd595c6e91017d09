package setup

import (
	"testing"

	"millrace"
)

func TestEveryMixtureKeyIsOfTheMixture(t *testing.T) {
	for key, want := range map[string]millrace.KeyClass{
		"mixture": millrace.KeyMixture, "mixture.weights.web": millrace.KeyMixture, "mixture.schedule[3]": millrace.KeyMixture, "mixture.groups.books": millrace.KeyMixture,
		"mixture.sizes.web": millrace.KeyMixture, "mixture.floor": millrace.KeyMixture, "mixture.unit": millrace.KeyUnit, "sources.web": millrace.KeySource,
		"stop.epochs": millrace.KeyEnd, "seed": millrace.KeyDocuments, "tokenizer.add_eos": millrace.KeyDocuments, "limits.sample_bytes": millrace.KeyDocuments,
		"sequence_length": millrace.KeySteps, "stages[0]": millrace.KeySteps, "carry": millrace.KeySteps,
	} {
		if got := Classify(key); got != want {
			t.Errorf("%s is of class %d, want %d", key, got, want)
		}
	}
}

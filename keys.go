package millrace

// KeyClass classifies a key of the mixture file by the part of a run that it decides. A resume with another value of
// the key changes the saved state accordingly. docs/resume.md describes each class.
type KeyClass uint8

const (
	// KeyFree keys have no effect on content: they may differ at every resume.
	KeyFree KeyClass = iota
	// KeySteps keys decide the number and the length of the segments of a step.
	KeySteps
	// KeyMixture keys decide the source of each draw. A new value drops the changes that `millrace mix` made.
	KeyMixture
	// KeyUnit is the unit in which the mixture counts. It is a mixture key. Deficits in another unit are reset.
	KeyUnit
	// KeySource keys decide one source: its format, its documents, its limits in the mixture.
	KeySource
	// KeyDocuments keys decide, in every source, the document of each ordinal or its tokens.
	KeyDocuments
	// KeyEnd keys decide when sources end.
	KeyEnd
)

// DecidesMixture reports whether keys of the class have a part in choosing the source of each draw.
func (c KeyClass) DecidesMixture() bool { return c == KeyMixture || c == KeyUnit || c == KeySource }

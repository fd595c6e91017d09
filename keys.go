package millrace

// KeyClass says what a key of the mixture file decides, and so what a resume with another value of it does to a saved state.
// docs/resume.md describes each class.
type KeyClass uint8

const (
	// KeyFree keys decide no content: they may differ at every resume.
	KeyFree KeyClass = iota
	// KeySteps keys decide how many segments of which length a step holds.
	KeySteps
	// KeyMixture keys decide which source is drawn when. Changes that `millrace mix` made to another mixture do not survive them.
	KeyMixture
	// KeyUnit is the unit that the mixture is counted in. It is a mixture key; deficits in another unit mean nothing.
	KeyUnit
	// KeySource keys decide one source: its format, its documents, its limits in the mixture.
	KeySource
	// KeyDocuments keys decide which document an ordinal is, or its tokens, in every source.
	KeyDocuments
	// KeyEnd keys decide when sources end.
	KeyEnd
)

// DecidesMixture reports whether a key of the class takes part in deciding which source is drawn when.
func (c KeyClass) DecidesMixture() bool { return c == KeyMixture || c == KeyUnit || c == KeySource }

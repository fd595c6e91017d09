package pipeline

// WordLevel is a model in which each part is one token.
type WordLevel struct {
	ids map[string]uint32
	unk uint32
}

// NewWordLevel returns the model of a vocabulary. unk is the id of a part that is none of its tokens.
func NewWordLevel(tokens [][]byte, unk uint32) WordLevel {
	ids := make(map[string]uint32, len(tokens))
	for id, token := range tokens {
		if len(token) > 0 {
			ids[string(token)] = uint32(id)
		}
	}
	return WordLevel{ids, unk}
}

// Kind returns the name of the kind of model.
func (WordLevel) Kind() string { return "WordLevel" }

// Pieces returns the part as one piece.
func (WordLevel) Pieces(part []byte, _ int, ends []int) int {
	ends[0] = len(part)
	return 1
}

// Append appends the id of a part.
func (m WordLevel) Append(dst []uint32, part []byte, _ *Scratch) []uint32 {
	id, ok := m.ids[string(part)]
	if !ok {
		id = m.unk
	}
	return append(dst, id)
}

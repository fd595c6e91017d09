package checkpoint

// Signpost is what a writer leaves beside the ledger, for ever, to find its way in it later: few of them, far apart. The key's step need not
// be sealed.
type Signpost struct {
	Key  StepKey
	Body []byte
}

// SignpostBefore returns the newest signpost of the key's stream and attempt at or before its step, and whether there is one.
func (s *Store) SignpostBefore(k StepKey) (p Signpost, ok bool, err error) {
	err = s.before(tagSignpost, StepKey{Stream: k.Stream, Attempt: k.Attempt}, k, p.read(&ok))
	return p, ok, err
}

// read decodes into p, copying: it outlives the cursor.
func (p *Signpost) read(ok *bool) func(key, value []byte) error {
	return func(key, value []byte) error {
		body, err := decodeBare(key, value)
		if err != nil {
			return err
		}
		if p.Key, *ok = parseStepKey(key); !*ok {
			return errShort
		}
		p.Body = append([]byte{}, body...)
		return nil
	}
}

package checkpoint

// IndexEntry is what a writer leaves beside the ledger, for ever, to find its way in it later: few of them, far apart. The key's step need not
// be sealed.
type IndexEntry struct {
	Key  StepKey
	Body []byte
}

// IndexEntryBefore returns the newest index entry of the key's stream and attempt at or before its step, and whether there is one.
func (s *Store) IndexEntryBefore(k StepKey) (p IndexEntry, ok bool, err error) {
	err = s.before(tagIndexEntry, StepKey{Stream: k.Stream, Attempt: k.Attempt}, k, p.read(&ok))
	return p, ok, err
}

// read decodes into p, copying: it outlives the cursor.
func (p *IndexEntry) read(ok *bool) func(key, value []byte) error {
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

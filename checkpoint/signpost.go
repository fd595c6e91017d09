package checkpoint

import "math"

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

// SignpostAfter returns the oldest signpost of the key's stream and attempt after its step, and whether there is one.
func (s *Store) SignpostAfter(k StepKey) (p Signpost, ok bool, err error) {
	if k.Step == math.MaxUint64 {
		return p, false, nil
	}
	leave, err := s.enter()
	if err != nil {
		return p, false, err
	}
	defer leave()
	from, to := k, k
	from.Step, to.Step = k.Step+1, math.MaxUint64
	c := s.scan(stepKey(tagSignpost, from), append(stepKey(tagSignpost, to), 0))
	if c.next() {
		if value := c.value(); c.err == nil {
			if err := p.read(&ok)(c.key(), value); err != nil {
				c.err = corrupt(s.dir, "signpost "+describeStepKey(c.key()), err.Error())
			}
		}
	}
	return p, ok, c.close()
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

package setup

import (
	"encoding/json"
	"fmt"

	"millrace/app/config"
)

// Stream is one stream of a run with all that its processes must know alike: its settings, the facts about its data,
// and its part of the host's resources. It is immutable.
type Stream struct {
	Config *config.Config
	Facts  config.Facts
	Part   Part
}

// resolved is the JSON form of a Stream.
type resolved struct {
	Config json.RawMessage
	Facts  config.Facts
	Part   Part
}

// Marshal returns the stream as JSON for the processes of one run. It belongs to one version of the binary.
func (s *Stream) Marshal() ([]byte, error) {
	text, err := s.Config.MarshalResolved()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(resolved{Config: text, Facts: s.Facts, Part: s.Part})
	if err != nil {
		return nil, fmt.Errorf("write the settings of a stream: %w", err)
	}
	return b, nil
}

// ReadStream reads the JSON of Marshal.
func ReadStream(b []byte) (*Stream, error) {
	var r resolved
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read the settings of a stream: %w", err)
	}
	c, err := config.UnmarshalResolved(r.Config)
	if err != nil {
		return nil, err
	}
	return &Stream{Config: c, Facts: r.Facts, Part: r.Part}, nil
}

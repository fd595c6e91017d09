package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// MarshalResolved returns the configuration as JSON for the processes of one run: every default is filled in and Base is absolute,
// so that it reads the same wherever they stand. It is internal to one version of the binary; users write the mixture file.
func (c *Config) MarshalResolved() ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write resolved configuration: %w", err)
	}
	return b, nil
}

// UnmarshalResolved reads what MarshalResolved wrote. The result has no places in a file: its errors name the file alone.
func UnmarshalResolved(b []byte) (*Config, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	c := new(Config)
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("read resolved configuration: %w", err)
	}
	return c, nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

package profile

import (
	"encoding/json"
	"fmt"

	"millrace/app/config"
)

// Load gives the sources of all streams of a configuration the profiles in their index directories.
func Load(c *config.Config) error {
	for _, stream := range c.All() {
		found, err := Read(stream)
		if err != nil {
			return err
		}
		for i, f := range found {
			if f.Work > 0 {
				stream.Sources[i].Profile = config.Profile{Nanoseconds: max(uint64(f.Work*1e9), 1),
					Resident: uint64(max(f.Resident, 0))}
			}
		}
	}
	return nil
}

// Facts returns the profiles of a configuration as a text for the other hosts of a run; empty: there are none.
func Facts(c *config.Config) string {
	facts, known := map[string][][2]uint64{}, false
	for name, stream := range c.All() {
		for i := range stream.Sources {
			p := stream.Sources[i].Profile
			facts[name] = append(facts[name], [2]uint64{p.Nanoseconds, p.Resident})
			known = known || p != config.Profile{}
		}
	}
	if !known {
		return ""
	}
	b, _ := json.Marshal(facts) // numbers
	return string(b)
}

// Adopt gives a configuration the profiles of Facts, whatever it had. The other host has the same mixture file.
func Adopt(c *config.Config, facts string) error {
	all := map[string][][2]uint64{}
	if facts != "" {
		if err := json.Unmarshal([]byte(facts), &all); err != nil {
			return fmt.Errorf("read the profiles of another host: %w", err)
		}
	}
	for name, stream := range c.All() {
		for i := range stream.Sources {
			p := &stream.Sources[i].Profile
			if *p = (config.Profile{}); i < len(all[name]) {
				p.Nanoseconds, p.Resident = all[name][i][0], all[name][i][1]
			}
		}
	}
	return nil
}

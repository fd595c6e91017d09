package profile

import (
	"encoding/json"
	"fmt"

	"millrace/app/config"
	"millrace/app/setup"
)

// Load returns the profiles in the index directories of a configuration, by stream: of each source in order.
func Load(c *config.Config) (map[string][]setup.Profile, error) {
	out := map[string][]setup.Profile{}
	for name, stream := range c.All() {
		found, err := Read(stream)
		if err != nil {
			return nil, err
		}
		out[name] = make([]setup.Profile, len(found))
		for i, f := range found {
			if f.Work > 0 {
				out[name][i] = setup.Profile{Nanoseconds: max(uint64(f.Work*1e9), 1),
					Resident: uint64(max(f.Resident, 0))}
			}
		}
	}
	return out, nil
}

// Facts returns profiles as a text for the other hosts of a run; empty: none is known.
func Facts(profiles map[string][]setup.Profile) string {
	facts, known := map[string][][2]uint64{}, false
	for name, all := range profiles {
		for _, p := range all {
			facts[name] = append(facts[name], [2]uint64{p.Nanoseconds, p.Resident})
			known = known || p != setup.Profile{}
		}
	}
	if !known {
		return ""
	}
	b, _ := json.Marshal(facts) // numbers
	return string(b)
}

// ReadFacts returns the profiles of Facts for the sources of a configuration. The host that wrote them has the same
// mixture file.
func ReadFacts(c *config.Config, facts string) (map[string][]setup.Profile, error) {
	all := map[string][][2]uint64{}
	if facts != "" {
		if err := json.Unmarshal([]byte(facts), &all); err != nil {
			return nil, fmt.Errorf("read the profiles of another host: %w", err)
		}
	}
	out := map[string][]setup.Profile{}
	for name, stream := range c.All() {
		out[name] = make([]setup.Profile, len(stream.Sources))
		for i, p := range all[name][:min(len(all[name]), len(out[name]))] {
			out[name][i] = setup.Profile{Nanoseconds: p[0], Resident: p[1]}
		}
	}
	return out, nil
}

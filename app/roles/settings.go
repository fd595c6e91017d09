package roles

import (
	"cmp"
	"encoding/json"
	"fmt"
	"millrace/app/config/resume"
	"strconv"
	"time"

	"millrace"
	"millrace/app/config"
	"millrace/app/config/identity"
	"millrace/app/growing"
	"millrace/app/setup"
	"millrace/internal/wire"
	"millrace/orchestrator"
	"millrace/orchestrator/attempts"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/scale"
	"millrace/proto"
	"millrace/sources"
	"millrace/sources/read/order"
)

// The runway has at least runwaySteps steps, at any pace of the ranks, and at most mostRunwaySteps. Its plans take at
// most runwayPlans bytes in the orchestrator. Its tokens take at most Part.Runway of the loaders' memory, as ids of 4
// bytes; it has two steps in any case.
const (
	runwaySteps     = 8
	mostRunwaySteps = 1000
	runwayPlans     = 16 << 20
)

// runway returns the steps to plan ahead at any pace, and how many more.
func runway(s *setup.Stream) (least int, ahead orchestrator.Ahead) {
	c := s.Config
	most := int(uint64(s.Part.Runway) / 4 / c.StepTokens())
	ahead = orchestrator.Ahead{Time: time.Duration(c.Limits.RunwaySeconds) * time.Second,
		Steps: max(2, min(mostRunwaySteps, most)), Bytes: runwayPlans}
	if a := setup.Adaptive(c); a != nil { // weights that follow losses come late by the runway
		ahead.Steps = min(ahead.Steps, max(runwaySteps, int(min(a.Every/4, mostRunwaySteps))))
	}
	return max(2, min(runwaySteps, most)), ahead
}

// OrchestratorConfig turns a stream into the configuration of an orchestrator that plans for `world` ranks.
// Version is this program's.
func OrchestratorConfig(s *setup.Stream, world int, version string) (orchestrator.Config, error) {
	var out orchestrator.Config
	c := s.Config
	topology, err := c.Topology(world)
	if err != nil {
		return out, err
	}
	strategy, err := setup.Strategy(c, s.Facts, topology)
	if err != nil {
		return out, err
	}
	now := c.Identity(s.Facts)
	encoded, err := json.Marshal(now)
	if err != nil {
		return out, fmt.Errorf("encode identity: %w", err)
	}
	options := strategy.Options()
	out = orchestrator.Config{
		Stream: millrace.Train, Spec: &strategy.Mix, Identity: encoded, Compare: sources.Compare, Inverse: Inverse,
		By: version, Cost: options.Cost, Adaptive: setup.Adaptive(c), Refit: setup.Refit(c),
		Topology: topologyOf(c, topology, options),
		Rules: facts.Rules{
			Changed:  func(stored []byte) ([]string, error) { return changed(stored, now) },
			Classify: resume.Classify,
			Files:    growing.Files(c, nil),
		},
		Shadows: s.Part.Fleet.Shadows,
	}
	earlier := c.Earlier().Identity(s.Facts)
	out.Rules.Earlier = &facts.Earlier{
		Changed: func(stored []byte) ([]string, error) { return changed(stored, earlier) },
	}
	if out.Rules.Earlier.Identity, err = json.Marshal(earlier); err != nil {
		return out, fmt.Errorf("encode identity: %w", err)
	}
	out.Reshape = func(t millrace.Topology) (*attempts.Topology, error) {
		other, err := c.Reshaped(t)
		if err != nil {
			return nil, err
		}
		of := setup.Stream{Config: other, Facts: s.Facts, Part: s.Part}
		reshaped, err := OrchestratorConfig(&of, t.Ranks, version)
		return reshaped.Topology, err
	}
	out.Runway, out.Ahead = runway(s)
	fleet, memory := s.Part.Fleet, s.Part.Reader.Heap
	out.Loaders, out.MostLoaders = fleet.Readers, fleet.Readers
	if fleet.IsRange {
		out.Loaders = fleet.Loaders
		out.Elastic = &orchestrator.Elastic{
			Limits: scale.Limits{Min: out.Loaders, Max: out.MostLoaders}, Memory: memory}
		for _, cost := range s.ReadingCosts() {
			out.Elastic.Costs = append(out.Elastic.Costs, float64(cost)/1e12) // seconds a token
		}
	}
	shares, err := s.Shares()
	if err != nil {
		return out, err
	}
	out.Memory = memory
	for i, share := range shares {
		out.Sources = append(out.Sources, orchestrator.Source{Name: c.Sources[i].Name, Stripes: share.Stripes,
			Work: share.Work, Resident: share.Resident, Allowed: setup.Allowed(c)})
	}
	return out, nil
}

// Reshaped returns a topology for a stream of a run with `world` ranks. An axis of 0 is as in the mixture file.
func Reshaped(c *config.Config, world, tp, cp, pp int) millrace.Topology {
	p := c.Parallelism
	return millrace.Topology{Ranks: c.Served(world), TP: cmp.Or(tp, int(p.TP)), CP: cmp.Or(cp, int(p.CP)),
		PP: cmp.Or(pp, int(p.PP))}
}

// topologyOf returns the distribution of a run's steps under a topology.
func topologyOf(c *config.Config, t millrace.Topology, options place.Options) *attempts.Topology {
	return &attempts.Topology{
		Ranks: t.Ranks, Placing: setup.Placing(c, t),
		Place: func(sel *planner.Selection) (*millrace.Plan, error) { return place.Plan(sel, t, options) },
		Recost: func(cost cost.Cost) func(*planner.Selection) (*millrace.Plan, error) {
			return recosted(t, options, cost)
		},
	}
}

// recosted returns a function that places selections with calibrated cost coefficients.
func recosted(
	topology millrace.Topology, options place.Options, cost cost.Cost,
) func(*planner.Selection) (*millrace.Plan, error) {
	options.Cost = options.Cost.Refit(cost.Linear, cost.Quadratic)
	return func(sel *planner.Selection) (*millrace.Plan, error) { return place.Plan(sel, topology, options) }
}

// changed returns the differences between a stored identity and the present one.
func changed(stored []byte, now identity.Identity) ([]string, error) {
	var old identity.Identity
	if err := json.Unmarshal(stored, &old); err != nil {
		return nil, millrace.Mark(err, millrace.ErrInvalid)
	}
	return identity.Diff(old, now), nil
}

// Inverse returns the ordinals below a bound at which a source's order holds a sample. stored is the identity of the
// run. Inverse returns false if the order cannot be inverted.
func Inverse(
	stored []byte, m *millrace.Manifest, id millrace.SampleID, below millrace.Ordinal,
) ([]millrace.Ordinal, bool) {
	var run identity.Identity
	if err := json.Unmarshal(stored, &run); err != nil {
		return nil, false
	}
	seed, err := strconv.ParseUint(run.Value("seed"), 10, 64)
	if err != nil || run.Value("long_documents") != "" { // the lengths of documents decide the order of pieces
		return nil, false
	}
	return order.Ordinals(m, seed, id, below)
}

// speaks returns the versions of this program. The orchestrator's program must have the same ones.
func speaks(version string) *proto.Version {
	return &proto.Version{
		Protocol: wire.ProtocolVersion,
		Planner:  progress.PlannerVersion,
		Program:  "millrace " + version,
	}
}

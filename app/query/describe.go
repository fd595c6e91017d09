package query

import (
	"fmt"
	"strings"

	pbuf "google.golang.org/protobuf/proto"

	"millrace/checkpoint"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/ledger"
	"millrace/proto"
)

// describe returns a summary of an entry of a store.
func describe(what string, _ uint8, key checkpoint.StepKey, body []byte) string {
	switch what {
	case "record":
		var r proto.Record
		if pbuf.Unmarshal(body, &r) == nil {
			return describeRecord(&r)
		}
	case "snapshot":
		var s proto.Snapshot
		if pbuf.Unmarshal(body, &s) == nil {
			return fmt.Sprintf(
				"term %d, attempt %d, steps below %d consumed, %d sealed beyond, %d sources", s.Term,
				s.GetAttempt().GetAttempt(), s.Acknowledged, len(s.Sealed), len(s.Manifests),
			)
		}
	case "entry":
		return ledger.DescribeEntry(body)
	case "indexEntry":
		if text, ok := facts.DescribeSettled(key, body); ok {
			return text
		}
		if text, ok := facts.DescribeFiles(key, body); ok {
			return text
		}
		return ledger.DescribeIndexEntry(body)
	case "plan":
		var p proto.Plan
		if pbuf.Unmarshal(body, &p) == nil {
			return fmt.Sprintf(
				"step %d: %d segments on %d ranks of %d microbatches", p.Step, len(p.GetAssignments().GetSource()),
				p.Ranks, p.Microbatches,
			)
		}
	}
	return "unknown"
}

func describeRecord(r *proto.Record) string {
	switch f := r.GetFact().(type) {
	case *proto.Record_Created:
		return fmt.Sprintf("created by millrace %s, planner %d", f.Created.By, f.Created.PlannerVersion)
	case *proto.Record_Term:
		return fmt.Sprintf("term %d", f.Term.Term)
	case *proto.Record_Assigned:
		return fmt.Sprintf("loaders assigned under term %d", f.Assigned.Term)
	case *proto.Record_Pinned:
		m := f.Pinned.GetManifest()
		return fmt.Sprintf("pinned source %s: %d files, shuffle %s", m.GetSource(), wire.CountShards(m), m.GetShuffle())
	case *proto.Record_Opened:
		return fmt.Sprintf("opened attempt %d at step %d on %d ranks", f.Opened.Attempt, f.Opened.Step,
			f.Opened.GetPlacing().GetRanks())
	case *proto.Record_Sealed:
		return fmt.Sprintf("sealed step %d of attempt %d, content %x, chain %x, %d bytes of change", f.Sealed.Step,
			f.Sealed.Attempt, f.Sealed.Content, f.Sealed.Chain, len(f.Sealed.Delta))
	case *proto.Record_Acknowledged:
		return fmt.Sprintf("steps below %d consumed by every rank", f.Acknowledged.Below)
	case *proto.Record_Quarantined:
		ids := make([]string, len(f.Quarantined.Samples))
		for i, q := range f.Quarantined.Samples {
			ids[i] = q.Source + " " + q.Id
		}
		return "quarantined " + strings.Join(ids, ", ")
	case *proto.Record_Masked:
		ids := make([]string, len(f.Masked.Masks))
		for i, m := range f.Masked.Masks {
			ids[i] = fmt.Sprintf("%s %s from token %d on", m.Source, m.GetSample().GetId(), m.Offset)
		}
		return "masked " + strings.Join(ids, ", ")
	case *proto.Record_Ended:
		return fmt.Sprintf("ended after %d steps: %s", f.Ended.Steps, f.Ended.Reason)
	case *proto.Record_Saved:
		return fmt.Sprintf("checkpoint of step %d saved", f.Saved.Step)
	}
	return "unknown fact"
}

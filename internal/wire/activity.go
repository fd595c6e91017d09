package wire

import (
	"millrace/internal/activity"
	"millrace/proto"
)

// CauseToProto encodes a cause, nil for an unknown one.
func CauseToProto(c activity.Cause) *proto.Activity {
	if c == (activity.Cause{}) {
		return nil
	}
	return &proto.Activity{Kind: string(c.Kind), Source: c.Source, Shard: c.Shard, Role: c.Role, Pid: c.Pid,
		Text: c.Text}
}

// CauseFromProto decodes a cause.
func CauseFromProto(a *proto.Activity) activity.Cause {
	return activity.Cause{Kind: activity.Kind(a.GetKind()), Source: a.GetSource(), Shard: a.GetShard(),
		Role: a.GetRole(), Pid: a.GetPid(), Text: a.GetText()}
}

// CurrentToProto encodes the current activity of a process, nil if it is idle.
func CurrentToProto(c activity.Current, role string, pid int64) *proto.Activity {
	if c.Kind == "" {
		return nil
	}
	return &proto.Activity{Kind: string(c.Kind), Source: c.Source, Shard: c.Shard, Role: role, Pid: pid}
}

// FiguresToProto encodes the figures of a process. It leaves out the sources whose figures are those in told, and notes
// the others there. A source that has become idle is sent once more.
func FiguresToProto(m *activity.Meter, role string, pid int64, told map[string]activity.Total) *proto.Figures {
	out := &proto.Figures{Wall: int64(m.Wall()), Cpu: int64(activity.CPU()), Role: role, Pid: pid}
	for _, s := range m.All() {
		f, current := s.Figures(), s.Current()
		now := f.Total()
		now.Idle = current.Kind == ""
		if told[s.Name()] == now {
			continue
		}
		told[s.Name()] = now
		e := &proto.SourceFigures{Source: s.Name(), Bytes: f.Bytes, Tokens: f.Tokens, Documents: f.Documents,
			Current: CurrentToProto(current, role, pid)}
		if f.Fetches != (activity.Fetches{}) {
			e.Fetches = &proto.Fetches{Fetched: f.Fetched, Used: f.Used, Requests: f.Requests, Retries: f.Retries,
				Hedges: f.Hedges, Hits: f.Hits, Misses: f.Misses}
		}
		for _, kind := range activity.Kinds() {
			if spent := f.Times[kind]; spent > 0 {
				e.Kind, e.Seconds = append(e.Kind, string(kind)), append(e.Seconds, spent.Seconds())
			}
		}
		out.Sources = append(out.Sources, e)
	}
	return out
}

// ActivityInWords describes an activity in a few words, for example "tokenise in source web (loader-0)".
func ActivityInWords(a *proto.Activity) string {
	if a == nil {
		return "not known"
	}
	text := a.Kind
	if a.Source != "" {
		text += " in source " + a.Source
	}
	if a.Role != "" {
		text += " (" + a.Role + ")"
	}
	return text
}

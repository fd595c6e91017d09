package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"millrace/app/supervisor"
	"millrace/proto"
)

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		Count(0): "0", Count(999): "999", Count(1234567): "1,234,567", About(1000, false): "~1,000", About(1000,
			true): "1,000",
		Size(1023): "1023 B", Size(1536): "1.5 KiB", Size(3 << 30): "3.0 GiB", Percent(0.1234): "12.34%",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestEnding(t *testing.T) {
	for reason, want := range map[string]string{
		"sources": "its sources are exhausted", "steps": "stop.steps is reached", "another": "another",
		"stop; not read to their end: web": "a source with on_exhausted: stop is exhausted; not read to their end: web",
	} {
		if got := ending(reason); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestStatusHasItsKeys: scripts find every key, also in a run that has not answered.
func TestStatusHasItsKeys(t *testing.T) {
	v := NewStatus([]supervisor.Role{{Role: "loader", Name: "loader-0"}}, true)
	v.Unanswered(errors.New("it is being started"))
	var b bytes.Buffer
	if err := Encode(&b, v); err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b.Bytes(), &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"running", "roles", "step", "planned", "attempt", "sources", "quarantined", "waiting",
		"alerts", "stripes", "mixture", "masked", "cache"} {
		if _, ok := keys[key]; !ok {
			t.Errorf("%s is missing", key)
		}
	}
	if keys["step"] != nil || !strings.Contains(v.Waiting, "is being started") {
		t.Errorf("step %v, waiting %q", keys["step"], v.Waiting)
	}
}

// TestStatusNamesTheShuffle: a source that is not shuffled as asked says how it is shuffled and why.
func TestStatusNamesTheShuffle(t *testing.T) {
	v := NewStatus(nil, true)
	v.Answer(&proto.StatusReply{Sources: map[string]*proto.SourceStatus{
		"web": {Tokens: 1000, Shuffle: "blocks", Why: "a.jsonl.gz can only be streamed"}, "code": {Shuffle: "global"},
	}})
	var b bytes.Buffer
	if err := v.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := "web is shuffled in blocks, not as the mixture file asks: a.jsonl.gz can only be streamed\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("no line %q in\n%s", want, &b)
	}
	if strings.Contains(b.String(), "code is shuffled") {
		t.Error("a source that is shuffled as asked has a line")
	}
}

// TestStatusAddsUpTheStorage: a source in an object store has a line and figures over all loaders, a local one has
// none.
func TestStatusAddsUpTheStorage(t *testing.T) {
	v := NewStatus(nil, true)
	role := func(fetched int64) *proto.RoleFigures {
		return &proto.RoleFigures{Sources: []*proto.SourceFigures{{Source: "code"},
			{Source: "web", Kind: []string{"read", "storage"}, Seconds: []float64{7, 1.5},
				Fetches: &proto.Fetches{Fetched: fetched, Used: 1 << 20, Requests: 10, Retries: 2, Hedges: 1, Hits: 3,
					Misses: 1}}}}
	}
	v.Answer(&proto.StatusReply{Sources: map[string]*proto.SourceStatus{"web": {}, "code": {}},
		Delivery: &proto.Delivery{Roles: []*proto.RoleFigures{role(1 << 20), role(2 << 20)}}})
	want := Storage{Fetched: 3 << 20, Used: 2 << 20, Requests: 20, Retries: 4, Hedges: 2, Hits: 6, Misses: 2, Waited: 3}
	if got := v.Sources["web"].Storage; got == nil || *got != want || v.Sources["code"].Storage != nil {
		t.Errorf("got %+v, want %+v, and none for code", got, want)
	}
	var b bytes.Buffer
	if err := v.Print(&b); err != nil {
		t.Fatal(err)
	}
	line := "storage of web: " + Size(3<<20) + " fetched, " + Size(2<<20) + " used, 20 requests, 4 retries, " +
		"2 hedges, 75.00% of 8 blocks from the cache, 3 s of waits\n"
	if !strings.Contains(b.String(), line) || strings.Contains(b.String(), "storage of code") {
		t.Errorf("no line %q in\n%s", line, &b)
	}
}

// TestStatusAddsUpTheCaches: loaders of one host share a store, so its bytes count once.
func TestStatusAddsUpTheCaches(t *testing.T) {
	v := NewStatus(nil, true)
	v.Answer(&proto.StatusReply{Roles: []*proto.RoleStatus{
		{Name: "loader-0", Cache: &proto.CacheFigures{Store: "a:/c", Hits: 300, Misses: 50, Held: 1 << 20,
			Limit: 4 << 20, Filled: 3, Waiting: 2}},
		{Name: "loader-1", Cache: &proto.CacheFigures{Store: "a:/c", Misses: 50, Held: 1 << 20, Limit: 4 << 20,
			Evicted: 7, LeftOut: 5, Trouble: "no space left on device"}},
		{Name: "loader-2", Cache: &proto.CacheFigures{Store: "b:/c", Held: 1 << 20, Limit: 4 << 20}},
		{Name: "sidecar-0"},
	}})
	var b bytes.Buffer
	if err := v.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := "token cache: 75.00% of 400 records read from it, " + Size(2<<20) + " of " + Size(8<<20) +
		" held, shards: 3 filled, 2 waiting, 7 evicted, 5 left out for lack of room; " +
		"loader-1: no space left on device\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("no line %q in\n%s", want, &b)
	}
	none := NewStatus(nil, true)
	none.Answer(&proto.StatusReply{})
	b.Reset()
	if err := none.Print(&b); err != nil || strings.Contains(b.String(), "token cache") || none.Cache != nil {
		t.Errorf("a run without a token cache prints\n%s", &b)
	}
}

// TestHostsOfRoles: they are shown if the run has several.
func TestHostsOfRoles(t *testing.T) {
	for _, host := range []string{"", "node-7"} {
		v := NewStatus([]supervisor.Role{{Role: "loader", Name: "loader-0-0", Pid: 7}}, true)
		role := &proto.RoleStatus{Role: "loader", Name: "loader-0-0", Pid: 7, Host: host}
		v.Answer(&proto.StatusReply{Roles: []*proto.RoleStatus{role}})
		var text bytes.Buffer
		if err := v.Print(&text); err != nil {
			t.Fatal(err)
		}
		object, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		isShown := strings.Contains(text.String(), "HOST") && strings.Contains(text.String(), "node-7") &&
			strings.Contains(string(object), `"host":"node-7"`)
		isMentioned := strings.Contains(text.String(), "HOST") || strings.Contains(string(object), `"host"`)
		if isShown != (host != "") || isMentioned != (host != "") {
			t.Errorf("host %q:\n%s\n%s", host, &text, object)
		}
	}
}

// TestRowsOfADroppedPlan: a step whose plan was dropped has a row for each range, without a place.
func TestRowsOfADroppedPlan(t *testing.T) {
	step := &LedgerStep{Step: 7, Ranges: []Range{{Source: "web", From: 3, To: 9}}, Changes: []Change{{AtStep: 7}}}
	rows := step.Rows()
	if len(rows) != 1 || rows[0].Kind != "range" || rows[0].Held != nil || rows[0].LastOrdinal != 9 {
		t.Errorf("got %+v", rows)
	}
	if len(rows[0].Changes) != 1 {
		t.Errorf("changes %q", rows[0].Changes)
	}
	step.Complete, step.Segments = true, []LedgerSegment{{Segment: Segment{Source: "web", Ordinal: 3, Row: 1}}}
	if rows = step.Rows(); len(rows) != 1 || rows[0].Kind != "segment" || rows[0].Held.Row != 1 {
		t.Errorf("got %+v", rows)
	}
}

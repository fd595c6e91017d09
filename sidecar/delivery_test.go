package sidecar

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"millrace"
)

// describe prints actions in the words of the scripts.
func describe(actions []action) string {
	var out []string
	for _, a := range actions {
		switch a := a.(type) {
		case join:
			out = append(out, "join "+string(a.start.Kind))
		case feed:
			out = append(out, "feed")
		case send:
			name := map[messageType]string{msgBegin: "BEGIN", msgEnd: "END", msgError: "ERROR"}[a.header.kind]
			if a.header.kind == msgError {
				name += fmt.Sprintf(" %d", a.header.rank)
			}
			out = append(out, name)
		case push:
			out = append(out, fmt.Sprintf("push %s/%d", a.batch.slot.Step, a.batch.slot.Microbatch))
		case commit:
			out = append(out, "commit "+a.step.String())
		case saved:
			out = append(out, "saved "+a.step.String())
		case release:
			out = append(out, "release")
		case status:
			out = append(out, "status")
		case hangUp:
			out = append(out, "hang up")
		}
	}
	return strings.Join(out, ", ")
}

func batchOf(step, microbatch int) built {
	return built{
		filled{
			slot:         millrace.Slot{Attempt: 1, Step: millrace.Step(step), Microbatch: uint32(microbatch)},
			microbatches: 2,
		},
	}
}

func from(kind messageType, step int) received {
	return received{header{kind: kind, attempt: 1, step: millrace.Step(step)}}
}

func TestDelivery(t *testing.T) {
	type line struct {
		event event
		want  string
	}
	beginAt := func(step int) begun {
		return begun{
			Begin{
				Topology: millrace.Topology{Ranks: 1, TP: 1, CP: 1, PP: 1},
				Attempt:  1,
				Step:     millrace.Step(step),
				State:    []byte("{}"),
				Shapes:   make([]millrace.Shape, 1),
			},
		}
	}
	for name, script := range map[string][]line{
		"a whole run": {
			{helloed{Start{Kind: millrace.StartFresh}}, "join fresh"},
			{beginAt(0), "BEGIN, feed"},
			{batchOf(0, 0), "push 0/0"}, {batchOf(0, 1), "push 0/1"}, {noMore{1}, ""},
			{from(msgRelease, 0), "release"},
			{from(msgCommit, 0), "commit 0"}, {from(msgCommit, 0), ""},
			{forwarded{1}, "END"},
			{from(msgSaved, 0), "saved 0"}, {from(msgRelease, 0), "release"},
			{from(msgWait, 0), "END"}, {from(msgCommit, 0), ""},
		},
		"nothing left to deliver": {
			{helloed{Start{Kind: millrace.StartState}}, "join state"}, {beginAt(7), "BEGIN, feed"}, {noMore{7}, "END"},
		},
		"going on commits what came before": {
			{helloed{Start{Kind: millrace.StartContinue}}, "join continue"}, {beginAt(7), "BEGIN, feed, commit 6"},
			{noMore{7}, ""}, {forwarded{7}, "END"},
		},
		"a commit may skip steps": {
			{helloed{}, "join "}, {beginAt(0), "BEGIN, feed"}, {batchOf(0, 0), "push 0/0"}, {batchOf(0, 1), "push 0/1"},
			{batchOf(1, 0), "push 1/0"}, {batchOf(1, 1), "push 1/1"},
			{from(msgCommit, 1), "commit 1"}, {from(msgCommit, 0), ""},
		},
		"commit of a step that was not delivered": {
			{helloed{}, "join "}, {beginAt(0), "BEGIN, feed"}, {batchOf(0, 0), "push 0/0"},
			{from(msgCommit, 0), "ERROR 4, hang up"}, {batchOf(0, 1), ""},
		},
		"commit of another attempt": {
			{helloed{}, "join "}, {beginAt(0), "BEGIN, feed"}, {batchOf(0, 0), "push 0/0"}, {batchOf(0, 1), "push 0/1"},
			{received{header{kind: msgCommit, attempt: 2}}, "ERROR 4, hang up"},
		},
		"commit before the run began": {{helloed{}, "join "}, {from(msgCommit, 0), "ERROR 4, hang up"}},
		"batches out of order": {
			{helloed{}, "join "}, {beginAt(0), "BEGIN, feed"}, {batchOf(0, 1), "ERROR 1, hang up"},
		},
		"a second HELLO": {{helloed{}, "join "}, {from(msgHello, 0), "ERROR 4, hang up"}},
		"garbage":        {{helloed{}, "join "}, {malformed{errShort}, "ERROR 4, hang up"}},
		"refused": {
			{helloed{}, "join "}, {from(msgWait, 0), "status"}, {refused{errors.New("no")}, "ERROR 2, hang up"},
			{beginAt(0), ""}, {from(msgWait, 0), ""},
		},
		"failed": {
			{helloed{}, "join "}, {beginAt(0), "BEGIN, feed"}, {failed{errors.New("no")}, "ERROR 1, hang up"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d delivery
			for i, l := range script {
				if got := describe(d.on(l.event)); got != l.want {
					t.Fatalf("line %d, %T: %q, want %q", i, l.event, got, l.want)
				}
			}
		})
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	h := header{
		version: protocolVersion, kind: msgBatch, flags: 3, attempt: 4, term: 5, step: 6,
		microbatch: 7, microbatches: 8, ring: 9, frame: 10,
		generation: 11, rank: 12, body: 2,
	}
	b := append(h.appendTo(nil), 1, 2)
	if len(b) != headerSize+2 {
		t.Fatalf("header of %d bytes", len(b)-2)
	}
	got, err := parseHeader(b)
	if err != nil || got != h {
		t.Errorf("got %+v, %v, want %+v", got, err, h)
	}
	for n := range b {
		if _, err := parseHeader(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for a message", n, len(b))
		}
	}
}

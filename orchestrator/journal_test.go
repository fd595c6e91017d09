package orchestrator

import (
	"testing"

	pbuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"millrace/orchestrator/facts"
	"millrace/proto"
)

// TestTheLedgerKeepsAllButTheState: a field of a plan that stored forgets would be lost by the first restart.
func TestTheLedgerKeepsAllButTheState(t *testing.T) {
	p := &proto.Plan{
		Fence:       &proto.Fence{Attempt: 1, Term: 2},
		Assignments: &proto.Assignments{Source: []uint32{0}, Ordinal: []uint64{3}},
	}
	m := p.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); f.Kind() {
		case protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes(make([]byte, 16)))
		case protoreflect.Uint64Kind:
			m.Set(f, protoreflect.ValueOfUint64(7))
		case protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(7))
		case protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		case protoreflect.MessageKind:
		default:
			t.Fatalf("field %s is of a kind that this test does not fill", f.Name())
		}
	}
	body, err := (&Orchestrator{}).stored(
		facts.Fact{Plan: p, Record: &proto.Record{Fact: &proto.Record_Sealed{Sealed: &proto.Sealed{}}}})
	if err != nil {
		t.Fatal(err)
	}
	var got proto.Plan
	if err := pbuf.Unmarshal(body.Body, &got); err != nil {
		t.Fatal(err)
	}
	p.State = nil
	if !pbuf.Equal(&got, p) {
		t.Fatalf("got %v, want %v", &got, p)
	}
}

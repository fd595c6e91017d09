package wire

import (
	"bytes"
	"testing"
	"unsafe"

	"google.golang.org/grpc/mem"
	pb "google.golang.org/protobuf/proto"

	"millrace/proto"
)

// TestPayloadIsTheSameOnTheWire: either side may be a plain protobuf peer.
func TestPayloadIsTheSameOnTheWire(t *testing.T) {
	c := NewPayload()
	for _, size := range []int{0, 1, 127, 128, 70_000} {
		want := &proto.FetchReply{
			Row: []uint32{3, 400}, Count: []uint32{1, 2}, Tokens: bytes.Repeat([]byte{7}, size), Last: true,
			Failed: []*proto.PartFailed{{Part: 2, Code: 9, Text: "fenced"}}, Cut: true,
			Placed: []*proto.PlacedRows{{Path: "a.bin", Row: []uint32{5}, Count: []uint32{6}, Offset: []uint64{7}}},
			Fields: []string{`{"lang": "en"}`, ""}, Wide: []bool{false, true},
		}
		fields := want.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if f := fields.Get(i); size > 0 && !want.ProtoReflect().Has(f) {
				t.Errorf("the test leaves out the field %s", f.Name())
			}
		}
		if size == 0 {
			want.Tokens = nil
		}
		out, err := c.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var plain proto.FetchReply
		if err := pb.Unmarshal(out.Materialize(), &plain); err != nil || !pb.Equal(&plain, want) {
			t.Fatalf("%d bytes: %v", size, err)
		}
		raw, err := pb.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got proto.FetchReply
		cut := len(raw) / 2
		parts := mem.BufferSlice{mem.SliceBuffer(raw[:cut]), mem.SliceBuffer(raw[cut:])}
		if err := c.Unmarshal(parts, &got); err != nil || !pb.Equal(&got, want) {
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
	out, err := c.Marshal(&proto.FetchReply{Row: []uint32{1}, Count: []uint32{2}, Tokens: make([]byte, 70_000)})
	if err != nil {
		t.Fatal(err)
	}
	var aligned proto.FetchReply
	if err := c.Unmarshal(out, &aligned); err != nil {
		t.Fatal(err)
	}
	if at := uintptr(unsafe.Pointer(&aligned.Tokens[0])); at%4 != 0 {
		t.Errorf("tokens are at %x", at)
	}
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer{0x22, 0xff}}, &proto.FetchReply{}); err == nil {
		t.Error("a cut message was accepted")
	}
	status := &proto.StatusReply{Step: 41200}
	out, err = c.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	var got proto.StatusReply
	if err := c.Unmarshal(out, &got); err != nil || got.Step != 41200 {
		t.Fatalf("%v %v", &got, err)
	}
}

package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec for all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"millrace/proto"
)

// Payload is gRPC's protobuf codec, with fewer copies of the tokens of a FetchReply. Encoding does not copy them, and
// decoding copies them once. The bytes on the wire are the same.
type Payload struct{ encoding.CodecV2 }

// NewPayload returns the codec, for grpc.ForceServerCodecV2 and grpc.ForceCodecV2.
func NewPayload() Payload { return Payload{encoding.GetCodecV2("proto")} }

const tokensField = 4 // of FetchReply

// Marshal sends a FetchReply's tokens without a copy. The sender must not write to them afterwards.
func (c Payload) Marshal(v any) (mem.BufferSlice, error) {
	reply, ok := v.(*proto.FetchReply)
	if !ok || len(reply.Tokens) == 0 {
		return c.CodecV2.Marshal(v)
	}
	head, err := protobuf.Marshal(&proto.FetchReply{
		Row: reply.Row, Count: reply.Count, Failed: reply.Failed, Cut: reply.Cut, Last: reply.Last,
		Placed: reply.Placed, Fields: reply.Fields, Wide: reply.Wide,
	})
	if err != nil {
		return nil, err
	}
	head = protowire.AppendTag(head, tokensField, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(reply.Tokens)))
	return mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(reply.Tokens)}, nil
}

// Unmarshal decodes a FetchReply. Its tokens are a slice of the received message. Marshal puts them at the end, so
// messages end at a multiple of four bytes in memory: then ids need no copy to be aligned.
func (c Payload) Unmarshal(data mem.BufferSlice, v any) error {
	reply, ok := v.(*proto.FetchReply)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	size := data.Len()
	b := make([]byte, (size+3)&^3)
	b = b[len(b)-size:]
	data.CopyTo(b)
	var tokens, others []byte
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeField(b)
		if n < 0 {
			return fmt.Errorf("decode payload: %w", protowire.ParseError(n))
		}
		if number == tokensField && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(b)
			tokens, _ = protowire.ConsumeBytes(b[tag:])
		} else {
			others = append(others, b[:n]...)
		}
		b = b[n:]
	}
	if err := protobuf.Unmarshal(others, reply); err != nil {
		return fmt.Errorf("decode payload: %w", err)
	}
	reply.Tokens = tokens
	return nil
}

package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec for all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"millrace/proto"
)

// Payload is gRPC's protobuf codec, with fewer copies of the bytes of a FetchReply. Encoding does not copy these bytes,
// and decoding copies them once. Nearly all bytes between loaders and constructors are of this kind. The bytes on the
// wire are the same.
type Payload struct{ encoding.CodecV2 }

// NewPayload returns the codec, for grpc.ForceServerCodecV2 and grpc.ForceCodecV2.
func NewPayload() Payload { return Payload{encoding.GetCodecV2("proto")} }

const arrowField = 1 // of FetchReply

// Marshal sends a FetchReply's bytes without a copy. The sender must not write to them afterwards.
func (c Payload) Marshal(v any) (mem.BufferSlice, error) {
	reply, ok := v.(*proto.FetchReply)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	head := protowire.AppendVarint(protowire.AppendTag(nil, arrowField, protowire.BytesType), uint64(len(reply.Arrow)))
	return mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(reply.Arrow)}, nil
}

// Unmarshal decodes a FetchReply into a slice of the received message.
func (c Payload) Unmarshal(data mem.BufferSlice, v any) error {
	reply, ok := v.(*proto.FetchReply)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.Materialize()
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("decode payload: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if number == arrowField && kind == protowire.BytesType {
			if reply.Arrow, n = protowire.ConsumeBytes(b); n < 0 {
				return fmt.Errorf("decode payload: %w", protowire.ParseError(n))
			}
		} else if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return fmt.Errorf("decode payload: %w", protowire.ParseError(n))
		}
		b = b[n:]
	}
	return nil
}

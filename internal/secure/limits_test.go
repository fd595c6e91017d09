package secure_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millrace/internal/secure"
	"millrace/internal/wire"
	"millrace/proto"
)

// TestLargeMessage: a server refuses a message above the limit by its length, before it has memory for it.
func TestLargeMessage(t *testing.T) {
	ca := newCA(t)
	files := ca.files("127.0.0.1", secure.Roles()...)
	c, _ := credentials(t, files)
	address, _ := serve(t, c, "127.0.0.1:0")
	conn, err := tls.Dial("tcp", address, raw(t, files))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "role"},
		{":path", proto.Orchestrator_Status_FullMethodName}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	head := binary.BigEndian.AppendUint32([]byte{0}, wire.MaxMessage+1)
	for _, write := range []func() error{
		func() error { return framer.WriteSettings() },
		func() error {
			return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(),
				EndHeaders: true})
		},
		func() error { return framer.WriteData(1, false, head) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	answer := ""
	decoder := hpack.NewDecoder(4096, func(f hpack.HeaderField) { answer += f.Name + ": " + f.Value + "\n" })
	for !strings.Contains(answer, "grpc-status") {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := frame.(*http2.HeadersFrame); ok {
			if _, err := decoder.Write(h.HeaderBlockFragment()); err != nil {
				t.Fatal(err)
			}
		}
	}
	runtime.ReadMemStats(&after)
	if !strings.Contains(answer, "grpc-status: 8") || !strings.Contains(answer, "larger than max") {
		t.Errorf("the answer is %s", answer)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > wire.MaxMessage/16 {
		t.Errorf("the refusal took %d bytes", used)
	}
}

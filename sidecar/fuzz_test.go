package sidecar_test

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"millrace"
	"millrace/sidecar/sidecartest"
)

// FuzzClient: a client that sends any datagrams at any time harms nobody. The other rank's trainer receives its next
// batch byte for byte, and the rank's own socket serves the next honest client.
func FuzzClient(f *testing.F) {
	greeting := msg{kind: hello, rank: ^uint32(0), body: []byte(`{"start":"latest"}`)}.bytes()
	for _, datagrams := range [][][]byte{
		{greeting},
		{greeting, msg{kind: release, ring: 7, frame: 1 << 31, generation: 1 << 63}.bytes()},
		{greeting, msg{kind: commit, attempt: 1, step: 1 << 63}.bytes()},
		{greeting, msg{kind: saved, attempt: 9, step: 3}.bytes(), msg{kind: wait}.bytes()},
		{greeting, msg{kind: 14, attempt: 1, body: []byte(`{"times":[[1e308,-1]],"losses":{"":[0,0]}}`)}.bytes()},
		{
			msg{kind: hello, flags: 1, body: []byte(`{"start":`)}.bytes(),
			msg{kind: hello, body: []byte(`null}`)}.bytes(),
		},
		{msg{kind: hello, body: []byte(`{"start":"state","state":{"step":-1},"override":["*"]}`)}.bytes()},
		{msg{kind: hello, attempt: 1, step: 1 << 62, body: []byte(`{"start":"continue"}`)}.bytes()},
		{[]byte("GET / HTTP/1.1\r\n\r\n"), greeting[:63], {}},
	} {
		f.Add(joinDatagrams(datagrams))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		h := open(t, sidecartest.Config{World: 2, Microbatches: 2, Rows: 2, Length: 16}, nil)
		peer, other := dial(t, h.path(0)), dial(t, h.path(1))
		for _, c := range []*client{peer, other} {
			c.hello("fresh", nil)
		}
		for _, c := range []*client{peer, other} {
			c.want(begin)
		}
		other.close()
		harass(t, h.path(1), splitDatagrams(input))
		honest := dial(t, h.path(1))
		honest.hello("continue", nil)
		for rank, c := range []*client{peer, honest} {
			if rank == 1 {
				c.want(begin)
			}
			compare(t, h.run, c, c.want(batchMsg), millrace.Rank(rank))
		}
	})
}

// harass sends datagrams to a socket, reads what comes, and leaves.
func harass(t *testing.T, path string, datagrams [][]byte) {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, d := range datagrams {
		if _, err := conn.Write(d); err != nil {
			break // the sidecar has refused the client
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Read(make([]byte, 1<<17))
}

// joinDatagrams puts datagrams into one input: the length of each (u16) before its bytes.
func joinDatagrams(datagrams [][]byte) []byte {
	var out []byte
	for _, d := range datagrams {
		out = binary.LittleEndian.AppendUint16(out, uint16(len(d)))
		out = append(out, d...)
	}
	return out
}

func splitDatagrams(input []byte) (out [][]byte) {
	for len(input) >= 2 && len(out) < 16 {
		n := min(int(binary.LittleEndian.Uint16(input)), len(input)-2)
		out = append(out, input[2:2+n])
		input = input[2+n:]
	}
	return out
}

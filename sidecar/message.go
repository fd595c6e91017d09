package sidecar

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"millrace"
	"millrace/internal/activity"
	"millrace/proto"
	"millrace/sidecar/ring"
)

// docs/protocol.md defines these numbers.
const (
	magic           = 0x434c494d // "MILC"
	protocolVersion = 1
	headerSize      = 64
	// maxDatagram limits one datagram, in bytes. A longer body comes in several datagrams with flagMore.
	maxDatagram = headerSize + 64<<10
	// maxBody limits the whole body of a client's message, in bytes: a state of tens of thousands of sources.
	maxBody = 16 << 20
)

type messageType uint16

const (
	msgHello   messageType = 1
	msgBegin   messageType = 2
	msgRing    messageType = 3
	msgBatch   messageType = 4
	msgRelease messageType = 5
	msgCommit  messageType = 6
	msgSaved   messageType = 7
	msgEnd     messageType = 8
	msgError   messageType = 9
	msgWait    messageType = 10
	msgStatus  messageType = 11
	msgAlerts  messageType = 12
	msgLeaving messageType = 13
	msgReport  messageType = 14
)

const (
	flagMore   uint32 = 1 << 0 // the body continues in the next datagram
	flagLast   uint32 = 1 << 1 // BATCH: the run's last microbatch of this rank
	flagAbsent uint32 = 1 << 2 // BATCH: another rank broadcasts the described tensors
	flagCause  uint32 = 1 << 3 // WAIT: the trainer waits; STATUS: the body is a statusBody
	flagFed    uint32 = 1 << 4 // WAIT, STATUS: also Delivery

	ringReadOnly uint32 = 1 // RING: the client can only read the memory
)

// errorKind selects the error that the client raises.
type errorKind uint32

const (
	errRun      errorKind = 1 // the run failed
	errStart    errorKind = 2 // the start was refused
	errBusy     errorKind = 3 // another process has the claim of this rank
	errProtocol errorKind = 4 // the client broke the protocol, or speaks another version
)

// header is the fixed part of every message. The type decides which fields apply.
type header struct {
	version      uint16
	kind         messageType
	flags        uint32
	attempt      millrace.Attempt
	term         millrace.Term
	step         millrace.Step
	microbatch   uint32
	microbatches uint32
	ring         uint32
	frame        uint32
	generation   uint64 // COMMIT, WAIT: microseconds that the trainer has waited
	rank         uint32 // HELLO: the number in the socket's name; BEGIN, BATCH: the rank of the world; ERROR: the kind
	body         uint32 // bytes that follow in this datagram
}

// appendTo appends the header to b.
func (h *header) appendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, magic)
	b = le.AppendUint16(b, protocolVersion)
	b = le.AppendUint16(b, uint16(h.kind))
	b = le.AppendUint32(b, h.flags)
	b = le.AppendUint32(b, uint32(h.attempt))
	b = le.AppendUint64(b, uint64(h.term))
	b = le.AppendUint64(b, uint64(h.step))
	b = le.AppendUint32(b, h.microbatch)
	b = le.AppendUint32(b, h.microbatches)
	b = le.AppendUint32(b, h.ring)
	b = le.AppendUint32(b, h.frame)
	b = le.AppendUint64(b, h.generation)
	b = le.AppendUint32(b, h.rank)
	return le.AppendUint32(b, h.body)
}

var errShort = errors.New("the length of the datagram differs from its header")

func parseHeader(b []byte) (header, error) {
	if len(b) < headerSize {
		return header{}, errShort
	}
	le := binary.LittleEndian
	if m := le.Uint32(b); m != magic {
		return header{}, fmt.Errorf("magic number %#x: not a Millrace client", m)
	}
	h := header{
		version: le.Uint16(b[4:]), kind: messageType(le.Uint16(b[6:])), flags: le.Uint32(b[8:]),
		attempt: millrace.Attempt(le.Uint32(b[12:])), term: millrace.Term(le.Uint64(b[16:])),
		step: millrace.Step(le.Uint64(b[24:])), microbatch: le.Uint32(b[32:]), microbatches: le.Uint32(b[36:]),
		ring: le.Uint32(b[40:]), frame: le.Uint32(b[44:]),
		generation: le.Uint64(b[48:]), rank: le.Uint32(b[56:]), body: le.Uint32(b[60:]),
	}
	if int(h.body) != len(b)-headerSize {
		return header{}, errShort
	}
	return h, nil
}

// message is one message to a client: a header and a body of any length. RING also has the ring, to send its memfd.
type message struct {
	header header
	body   []byte
	ring   *ring.Ring
}

// helloBody is HELLO's JSON.
type helloBody struct {
	Start    millrace.StartKind `json:"start"`
	State    json.RawMessage    `json:"state,omitempty"`
	Override []string           `json:"override,omitempty"`
	GPU      Seat               `json:"gpu,omitzero"`
	ReadOnly bool               `json:"read_only,omitempty"`
	Client   string             `json:"client,omitempty"` // its version
}

// beginBody is BEGIN's JSON.
type beginBody struct {
	World    int             `json:"world"`
	Shape    beginShape      `json:"shape"`
	Topology beginAxes       `json:"topology"`
	Place    beginAxes       `json:"coordinates"`
	Source   *millrace.Rank  `json:"broadcast_source"` // null: the rank has its own tensors
	State    json.RawMessage `json:"state"`
	Notice   string          `json:"notice,omitempty"`
}

// beginAxes has the number of ranks along each axis, or the coordinates of one rank.
type beginAxes struct {
	TP int `json:"tp"`
	CP int `json:"cp"`
	DP int `json:"dp"`
	PP int `json:"pp"`
}

type beginShape struct {
	SequenceLength uint32 `json:"sequence_length"`
	MicroBatch     uint32 `json:"micro_batch_size"`
	Layout         string `json:"layout"`
	TokenDtype     string `json:"token_dtype"`
}

// reportBody is REPORT's JSON.
type reportBody struct {
	Losses map[string][2]float64 `json:"losses"` // by source: sum, tokens
	Times  [][2]float64          `json:"times"`  // microbatch, seconds
}

// statusBody is STATUS's JSON.
type statusBody struct {
	activity.Cause
	Delivery *proto.Delivery `json:"delivery,omitempty"`
}

// statusMessage answers a WAIT with its flags: as JSON, or as text for a client that does not ask for more.
func statusMessage(flags uint32, cause activity.Cause, delivery *proto.Delivery) (message, error) {
	flags &= flagCause | flagFed
	if flags == 0 {
		return message{header: header{kind: msgStatus}, body: []byte(cause.Text)}, nil
	}
	body, err := json.Marshal(statusBody{cause, delivery})
	if err != nil {
		return message{}, fmt.Errorf("write STATUS: %w", err)
	}
	return message{header: header{kind: msgStatus, flags: flags}, body: body}, nil
}

// waited returns the time that a trainer has waited in all, as its COMMIT or WAIT has it; false: an older client.
func (h *header) waited() (time.Duration, bool) {
	return time.Duration(min(h.generation, 1<<52)) * time.Microsecond, h.generation > 0
}

// parseReport reads the measurements of a trainer. It leaves out impossible values: no batch depends on a report.
func parseReport(h header, body []byte) (Report, error) {
	r := Report{Attempt: h.attempt, Step: h.step}
	var b reportBody
	if err := json.Unmarshal(body, &b); err != nil {
		return r, fmt.Errorf("read REPORT: %w", err)
	}
	for _, source := range slices.Sorted(maps.Keys(b.Losses)) {
		r.Losses = append(r.Losses,
			SourceLoss{Source: source, Sum: b.Losses[source][0], Tokens: uint64(max(b.Losses[source][1], 0))})
	}
	for _, t := range b.Times {
		if t[0] >= 0 && t[0] < 1<<31 && t[1] > 0 {
			r.Microbatches, r.Seconds = append(r.Microbatches, uint32(t[0])), append(r.Seconds, t[1])
		}
	}
	return r, nil
}

// otherProtocol is the refusal of a client that speaks another version of the protocol. Its HELLO may have any content.
func otherProtocol(h header, body []byte, program string) error {
	var b helloBody
	_ = json.Unmarshal(body, &b)
	client, from := "the client", "of the sidecar's release"
	if b.Client != "" {
		client = fmt.Sprintf("the client %.40q", b.Client)
	}
	if program != "" {
		from = "of Millrace " + program + ", as the sidecar"
	}
	return fmt.Errorf("%s speaks protocol %d, this sidecar %d: install the client %s", client, h.version,
		protocolVersion, from)
}

func parseHello(h header, body []byte) (Start, error) {
	var b helloBody
	if err := json.Unmarshal(body, &b); err != nil {
		return Start{}, fmt.Errorf("read HELLO: %w", err)
	}
	s := Start{Kind: b.Start, State: b.State, Override: b.Override, Seat: b.GPU, ReadOnly: b.ReadOnly}
	switch s.Kind {
	case millrace.StartNone, millrace.StartFresh, millrace.StartLatest:
	case millrace.StartState:
		if len(s.State) == 0 {
			return Start{}, errors.New("read HELLO: start \"state\" came without a state: send the state too")
		}
	case millrace.StartContinue:
		s.Attempt, s.Step, s.Microbatch = h.attempt, h.step, h.microbatch
	default:
		return Start{}, fmt.Errorf("read HELLO: unknown start %q", s.Kind)
	}
	return s, nil
}

func beginMessage(rank millrace.Rank, b Begin) (message, error) {
	state := b.State
	if len(state) == 0 {
		state = []byte("null")
	}
	t := b.Topology
	out := beginBody{World: t.Ranks, State: state, Notice: b.Notice, Shape: beginShape{
		SequenceLength: b.Shapes[0].SequenceLength, MicroBatch: b.Shapes[0].MicroBatch,
		Layout: string(b.Shapes[0].Layout), TokenDtype: string(b.Shapes[0].TokenDtype),
	}, Topology: beginAxes{t.TP, t.CP, t.DP(), t.PP}, Place: beginAxes(t.Coordinates(rank))}
	if source := b.Source(rank); source != rank {
		out.Source = &source
	}
	body, err := json.Marshal(out)
	if err != nil {
		return message{}, fmt.Errorf("write BEGIN: the state is not JSON: %w", err)
	}
	return message{header: header{
		kind: msgBegin, attempt: b.Attempt, term: b.Term, step: b.Step, microbatch: b.Microbatch, rank: uint32(rank),
	}, body: body}, nil
}

func alertsMessage(alerts []Alert) (message, error) {
	if alerts == nil {
		alerts = []Alert{}
	}
	body, err := json.Marshal(alerts)
	if err != nil {
		return message{}, fmt.Errorf("write ALERTS: %w", err)
	}
	return message{header: header{kind: msgAlerts}, body: body}, nil
}

func leavingMessage() message { return message{header: header{kind: msgLeaving}} }

func errorMessage(kind errorKind, reason string) message {
	return message{header: header{kind: msgError, rank: uint32(kind)}, body: []byte(reason)}
}

func ringMessage(r *ring.Ring) message {
	body := binary.LittleEndian.AppendUint64(nil, uint64(r.Size()))
	body = binary.LittleEndian.AppendUint64(body, uint64(r.Stride()))
	body = binary.LittleEndian.AppendUint32(body, r.Len())
	access := uint32(0)
	if r.Shared() {
		access = ringReadOnly
	}
	body = binary.LittleEndian.AppendUint32(body, access)
	return message{header: header{kind: msgRing, ring: r.Number()}, body: body, ring: r}
}

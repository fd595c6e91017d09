package wire

// ProtocolVersion numbers the messages between roles and their meaning. A change that an older role would misunderstand
// takes the next number. A new field that an older role may ignore takes none.
const ProtocolVersion = 6

// MaxMessage is the largest message between roles in bytes: a plan, a status or a
// step of the ledger.
const MaxMessage = 256 << 20

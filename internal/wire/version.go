package wire

// ProtocolVersion numbers the messages between roles and their meaning. A change that an older role would misunderstand
// takes the next number. A new field that an older role may ignore takes none.
const ProtocolVersion = 1

// MaxMessage is the largest message between roles in bytes: a plan, or a part of a reply to a fetch.
const MaxMessage = 256 << 20

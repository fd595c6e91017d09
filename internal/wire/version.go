package wire

// ProtocolVersion names the messages between roles and what they mean. A change that a role of before would misunderstand takes the next
// number; a new field that it may overlook does not.
const ProtocolVersion = 1

// Package wire turns the types of package millrace into protocol messages and back, and errors into gRPC codes and
// back.
package wire

// Package wire turns the words into protocol messages and back, and errors into gRPC codes and back.
package wire

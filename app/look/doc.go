// Package look describes data files: their fields with kinds, lengths and values. It writes a mixture file from them.
package look

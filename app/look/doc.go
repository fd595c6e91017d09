// Package look describes data files: their fields with kinds, lengths and values. From what it sees it writes a
// mixture file.
package look

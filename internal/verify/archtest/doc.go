// Package archtest holds no code: its tests keep the imports, sizes and habits of the house as docs/ARCHITECTURE.md describes them.
//
// table_test.go is the whole architecture as data: who imports whom, who owns which library, and every exception with its reason.
package archtest

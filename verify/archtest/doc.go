// Package archtest holds no code. Its tests check imports, sizes, language and habits of the whole repository.
//
// table_test.go is the architecture as data: the allowed imports, the owners of libraries, and every exception with its
// reason. docs/ARCHITECTURE.md describes the packages.
package archtest

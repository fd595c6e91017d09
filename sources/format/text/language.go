package text

import (
	"path"
	"strings"
)

// languageRows lists languages with their extensions. The names are those of public code datasets, in lower case.
const languageRows = `
assembly:asm,s
batchfile:bat
c:c,h
c++:cc,cpp,cxx,hpp,hh
c-sharp:cs
clojure:clj
cmake:cmake
common-lisp:lisp
css:css
cuda:cu,cuh
dart:dart
elixir:ex,exs
elm:elm
erlang:erl
f-sharp:fs
fortran:f90,f
go:go
graphql:graphql
groovy:groovy
haskell:hs
html:html,htm
java:java
javascript:js,mjs,jsx
json:json
julia:jl
kotlin:kt,kts
lean:lean
lua:lua
markdown:md
objective-c:m
objective-c++:mm
ocaml:ml,mli
pascal:pas
perl:pl,pm
php:php
powershell:ps1
protocol-buffer:proto
python:py,pyi
r:r
restructuredtext:rst
ruby:rb
rust:rs
scala:scala
scheme:scm
scss:scss
shell:sh,bash,zsh
solidity:sol
sql:sql
swift:swift
systemverilog:sv
tcl:tcl
tex:tex
text:txt
toml:toml
typescript:ts,tsx
verilog:v
vhdl:vhd
vue:vue
xml:xml
yaml:yaml,yml
zig:zig
`

// languageOf returns the language that a file's name shows, "" if it shows none.
func languageOf(base string) string {
	switch base {
	case "Makefile", "makefile", "GNUmakefile":
		return "makefile"
	case "Dockerfile":
		return "dockerfile"
	case "CMakeLists.txt":
		return "cmake"
	}
	ext := strings.TrimPrefix(strings.ToLower(path.Ext(base)), ".")
	for row := range strings.FieldsSeq(languageRows) {
		language, extensions, _ := strings.Cut(row, ":")
		for e := range strings.SplitSeq(extensions, ",") {
			if e == ext {
				return language
			}
		}
	}
	return ""
}

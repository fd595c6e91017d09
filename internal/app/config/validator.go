package config

import (
	"millrace/internal/app/config/decode"
	"millrace/internal/app/config/tree"
)

// validator checks keys against each other and fills in the defaults that depend on other keys.
type validator struct {
	*decode.Decoder
	c *Config
}

// wrong reports a mistake at the value of a path, or at the mapping around it.
func (v *validator) wrong(path, msg, cure string) {
	at, _ := v.Place(path)
	v.Fail(path, at, msg, cure)
}

// wrongKey reports a mistake at a path's key: for a key that should not be there.
func (v *validator) wrongKey(path, msg, cure string) { v.Fail(path, v.KeyOf(path), msg, cure) }

// written returns the first of the paths that is in the file, or the last one.
func (v *validator) written(paths ...string) string {
	for _, p := range paths {
		if _, ok := v.Place(p); ok {
			return p
		}
	}
	return paths[len(paths)-1]
}

// given returns the keys of a mapping that are written in the file.
func (v *validator) given(path string, keys ...string) (out []string) {
	for _, k := range keys {
		if _, ok := v.Place(decode.Join(path, k)); ok {
			out = append(out, k)
		}
	}
	return out
}

// sourcesNamed reports whether the names of the sources are known.
func (v *validator) sourcesNamed() bool {
	at, ok := v.Place("sources")
	return ok && at.Kind == tree.Mapping
}

//go:build !cgo

package gpu

import "errors"

// Open returns an error: this binary was built without cgo, which NVML needs.
func Open() (Library, error) {
	return nil, errors.New("this binary was built without cgo, which NVML needs: build it with CGO_ENABLED=1")
}

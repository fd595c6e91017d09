// Command image writes an OCI image of several architectures as a tar file, without a daemon. Equal inputs give equal
// bytes.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the owner of the process: no root, and no user of a host.
const user = "65532:65532"

// epoch is the time of every file, so that the bytes depend on the content alone.
var epoch = time.Unix(0, 0).UTC()

// file is one entry of the layer. A name that ends in a slash is a directory.
type file struct {
	name    string
	mode    int64
	content []byte
}

func main() {
	out := flag.String("out", "", "tar file to write")
	version := flag.String("version", "", "version of the program")
	revision := flag.String("revision", "", "commit of the program")
	licence := flag.String("license", "", "file with the licence")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: image -out FILE … ARCH=BINARY,SBOM …")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	labels := map[string]string{
		"org.opencontainers.image.title":       "millrace",
		"org.opencontainers.image.description": "One exact stream of length-balanced batches to every trainer rank",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     *version,
		"org.opencontainers.image.revision":    *revision,
	}
	if err := write(*out, labels, *licence, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(out string, labels map[string]string, licence string, platforms []string) error {
	text, err := os.ReadFile(licence)
	if err != nil {
		return fmt.Errorf("read the licence: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		arch, paths, _ := strings.Cut(platform, "=")
		binary, bill, found := strings.Cut(paths, ",")
		if !found {
			return fmt.Errorf("read the argument %q: want ARCH=BINARY,SBOM", platform)
		}
		image, err := build(arch, binary, bill, text, labels)
		if err != nil {
			return fmt.Errorf("build the image of %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	folder, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	name := map[string]string{"org.opencontainers.image.ref.name": labels["org.opencontainers.image.version"]}
	if err := path.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	return pack(out, folder)
}

// build returns the image of one architecture: one layer with a static binary.
func build(arch, binary, bill string, licence []byte, labels map[string]string) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	parts, err := os.ReadFile(bill)
	if err != nil {
		return nil, err
	}
	content, err := archive([]file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nmillrace:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/none\nmillrace:x:65532:65532:millrace:/tmp:/none\n")},
		{"licenses/", 0o755, nil},
		{"licenses/LICENSE", 0o644, licence},
		{"millrace", 0o755, program},
		{"sbom/", 0o755, nil},
		{"sbom/millrace.cdx.json", 0o644, parts},
		{"tmp/", 0o1777, nil},
	})
	if err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, History: v1.History{CreatedBy: "make image", Created: v1.Time{Time: epoch}},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: epoch}
	config.Config = v1.Config{
		Entrypoint: []string{"/millrace"}, Cmd: []string{"--help"}, User: user, WorkingDir: "/", Labels: labels,
		Env: []string{"PATH=/", "HOME=/tmp"},
	}
	return mutate.ConfigFile(image, config)
}

// archive returns a tar file. Its entries belong to root.
func archive(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: epoch,
			Format: tar.FormatUSTAR,
		}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// pack writes the files of a folder as a tar file, in the order of their names.
func pack(out, folder string) error {
	var files []file
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		files = append(files, file{name, 0o644, content})
		return err
	})
	if err != nil {
		return fmt.Errorf("read the layout: %w", err)
	}
	content, err := archive(files)
	if err != nil {
		return fmt.Errorf("pack the layout: %w", err)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(out), 0o755), os.WriteFile(out, content, 0o644))
}

package find

import (
	"path/filepath"
	"slices"
	"strings"

	"millrace/sources/format/registry"
)

// binaryEndings returns endings of files in trees of text, such as repositories, that hold no text.
func binaryEndings() []string {
	return []string{
		".png", ".jpg", ".jpeg", ".gif", ".bmp", ".ico", ".icns", ".webp", ".tif", ".tiff", ".psd", ".heic", ".avif",
		".mp3", ".mp4", ".wav", ".flac", ".ogg", ".avi", ".mov", ".mkv", ".webm", ".m4a",
		".pdf", ".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx", ".odt", ".epub", ".djvu",
		".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tar", ".jar", ".war", ".whl", ".egg", ".deb",
		".rpm",
		".o", ".a", ".so", ".dll", ".dylib", ".exe", ".lib", ".obj", ".pyc", ".pyo", ".pyd", ".class", ".wasm", ".node",
		".ttf", ".otf", ".woff", ".woff2", ".eot", ".db", ".sqlite", ".sqlite3", ".mdb", ".dat", ".bin", ".pack",
		".npy", ".npz", ".pt", ".pth", ".ckpt", ".safetensors", ".onnx", ".h5", ".hdf5", ".pkl", ".parquet", ".arrow",
		".tfrecord", ".mo", ".rdb", ".swp", ".iso", ".img", ".dmg",
	}
}

// isBinary reports whether a file's name is that of a binary file. A packed file is one if it has no ending before that
// of its packing, or the ending of a binary file.
func isBinary(file string) bool {
	name := strings.ToLower(filepath.Base(file))
	bare, packings := unpacked(name)
	read := registry.Named(registry.Text).Packed
	if len(packings) == 1 && slices.Contains(read, packings[0]) && filepath.Ext(bare) != "" {
		name = bare
	}
	return slices.Contains(binaryEndings(), filepath.Ext(name))
}

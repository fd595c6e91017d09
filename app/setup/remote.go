package setup

import (
	"log/slog"
	"path/filepath"

	"millrace/app/config"
	"millrace/internal/activity"
	"millrace/sources"
	"millrace/sources/store/cache"
	"millrace/sources/store/remote"
)

// Files returns the files of a source: those of its store if its path is a URL, else those of the operating system.
// The sources of a process share the connections of k; with nil the source has its own.
func Files(s *config.Source, b *ReadBuffers) sources.FS {
	if !s.IsRemote() {
		return sources.OSFS()
	}
	host := remote.NewHost(remote.Options{})
	if b != nil {
		host = b.remote
	}
	storage := remote.Storage{}
	if at := s.Storage; at != nil {
		storage = remote.Storage{Endpoint: at.Endpoint, Region: at.Region, Anonymous: at.Anonymous}
	}
	return host.Files(s.Name, storage)
}

// Stores returns the means of a process for reading remote files, with the cache of their blocks if there is one. The
// meter shows their figures; with nil, nothing does.
// The error of a directory that cannot be written names its place in the mixture file; it wraps millrace.ErrInvalid.
func Stores(c *config.Config, ahead int64, meter *activity.Meter, log *slog.Logger) (*remote.Host, error) {
	options := remote.Options{Ahead: ahead, Meter: meter}
	var err error
	if c.KeepsFiles() {
		options.Cache, err = cache.OpenBlocks(cache.Config{Dir: filepath.Join(c.CachePath(), "files"),
			Limit: int64(c.Cache.Files), Log: log})
		if err != nil {
			err = c.FailureAt("cache.dir", err.Error(), err, cureOfCacheDir)
		}
	}
	return remote.NewHost(options), err
}

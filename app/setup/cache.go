package setup

import (
	"log/slog"

	"millrace/app/config"
	"millrace/sources/store/cache"
)

const cureOfCacheDir = "write a directory that can be written, on a disk with room"

// TokenCache opens the token cache of a mixture, nil if it has none. The error of a directory that cannot be written
// names its place in the mixture file; it wraps millrace.ErrInvalid.
func TokenCache(c *config.Config, log *slog.Logger) (*cache.Store, error) {
	if !c.KeepsTokens() {
		return nil, nil
	}
	s, err := cache.Open(cache.Config{Dir: c.CachePath(), Limit: int64(c.Cache.Tokens), Log: log})
	if err != nil {
		return nil, c.FailureAt("cache.dir", err.Error(), err, cureOfCacheDir)
	}
	return s, nil
}

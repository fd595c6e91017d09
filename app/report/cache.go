package report

import (
	"fmt"
	"io"

	"millrace/proto"
)

// Cache has the figures of the token caches of a run's loaders. Counts are of the processes that run now, since they
// started; bytes are of all files.
type Cache struct {
	Hits     uint64   `json:"hits"`   // records that were read from the cache
	Misses   uint64   `json:"misses"` // records that were read from their shards
	Held     int64    `json:"bytes_held"`
	Limit    int64    `json:"bytes_limit"`
	Filled   uint64   `json:"filled"`   // entries written
	Evicted  uint64   `json:"evicted"`  // entries removed to make room
	Damaged  uint64   `json:"damaged"`  // entries removed because their bytes were wrong
	Waiting  uint64   `json:"waiting"`  // shards whose entries are still to be written
	LeftOut  uint64   `json:"left_out"` // shards without an entry: the limit or the disk had no room
	Failed   uint64   `json:"failed"`   // shards without an entry: reading or writing failed
	Troubles []string `json:"troubles"` // newest failure of each loader, empty after its next written entry
}

// newCache adds up the figures of all loaders. Loaders of one host share a store, so its bytes count once. It returns
// nil without a token cache.
func newCache(roles []*proto.RoleStatus) *Cache {
	c, found := &Cache{Troubles: []string{}}, false
	held, limit := map[string]int64{}, map[string]int64{}
	for _, role := range roles {
		f := role.Cache
		if f == nil {
			continue
		}
		found = true
		c.Hits += f.Hits
		c.Misses += f.Misses
		c.Filled += f.Filled
		c.Evicted += f.Evicted
		c.Damaged += f.Damaged
		c.Waiting += f.Waiting
		c.LeftOut += f.LeftOut
		c.Failed += f.Failed
		held[f.Store], limit[f.Store] = max(held[f.Store], f.Held), f.Limit
		if f.Trouble != "" {
			c.Troubles = append(c.Troubles, role.Name+": "+f.Trouble)
		}
	}
	if !found {
		return nil
	}
	for store := range held {
		c.Held += held[store]
		c.Limit += limit[store]
	}
	return c
}

// print writes one line.
func (c *Cache) print(w io.Writer) {
	fmt.Fprintf(w, "\ntoken cache: %s of %s records read from it, %s of %s held, shards: %s filled, %s waiting",
		Percent(float64(c.Hits)/float64(max(c.Hits+c.Misses, 1))), Count(c.Hits+c.Misses), Size(c.Held), Size(c.Limit),
		Count(c.Filled), Count(c.Waiting))
	for _, more := range []struct {
		n    uint64
		what string
	}{{c.Evicted, "evicted"}, {c.Damaged, "damaged"}, {c.LeftOut, "left out for lack of room"}, {c.Failed, "failed"}} {
		if more.n > 0 {
			fmt.Fprintf(w, ", %s %s", Count(more.n), more.what)
		}
	}
	for _, text := range c.Troubles {
		fmt.Fprintf(w, "; %s", text)
	}
	fmt.Fprintln(w)
}

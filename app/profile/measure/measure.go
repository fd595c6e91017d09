// Package measure measures the cost of reading each source of a mixture.
package measure

import (
	"context"
	"errors"
	"runtime"
	"time"

	"millrace"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/profile"
	"millrace/internal/activity"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
)

// Options say how long a source is read.
type Options struct {
	Each     time.Duration // of reading, for each source
	Only     string        // this source alone; empty: all
	Progress func(source string, done, total int64)
}

// ahead is the number of documents that are asked for at once.
const ahead = 64

// Sources opens and reads each source alone, in the order of a run. Its error is the first source's that cannot be
// read.
func Sources(ctx context.Context, c *config.Config, o Options) ([]profile.Source, error) {
	// The first opening also makes the index, and memory that all sources share.
	opened, err := dryrun.Open(ctx, c, dryrun.Options{Only: o.Only, OnePass: true, Whole: true})
	if opened != nil {
		err = errors.Join(err, opened.Close())
	}
	if err != nil {
		return nil, err
	}
	var out []profile.Source
	for i := range c.Sources {
		if o.Only != "" && o.Only != c.Sources[i].Name {
			continue
		}
		o.Progress(c.Sources[i].Name, int64(i), int64(len(c.Sources)))
		s, err := one(ctx, c, c.Sources[i].Name, o.Each)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// heap returns the bytes in use after two collections: the first one only runs the finalizers of files.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// one opens a source and reads it. Its resident bytes are those that become free when it is closed.
func one(ctx context.Context, c *config.Config, name string, each time.Duration) (profile.Source, error) {
	meter := activity.New(time.Now)
	opened, err := dryrun.Open(ctx, c, dryrun.Options{Only: name, OnePass: true, Whole: true, Meter: meter})
	if err != nil {
		if opened != nil {
			err = errors.Join(err, opened.Close())
		}
		return profile.Source{}, err
	}
	shared := opened.Encoding // all sources of a loader have it
	out, err := read(ctx, opened, meter.Source(name), each)
	out.Source, out.Resident = name, heap()
	err = errors.Join(err, opened.Close())
	opened, meter = nil, nil
	out.Resident = max(out.Resident-heap(), 0)
	runtime.KeepAlive(shared)
	return out, err
}

// read reads the only source that is open.
func read(
	ctx context.Context, opened *dryrun.Opened, meter *activity.Source, each time.Duration,
) (profile.Source, error) {
	f := feed.New(opened.Sources[0], feed.Position{}, order.Stripe{}, feed.Config{Budget: budget.New(64 << 20)})
	ctx, stop := context.WithCancel(ctx)
	ended, opening := make(chan struct{}), meter.Figures()
	go func() { defer close(ended); _ = f.Run(ctx) }() // its readers get its error
	tokens, err := take(ctx, f, each)
	now := meter.Figures()
	stop()
	<-ended
	made := float64(max(now.Tokens-opening.Tokens, 1))
	spent := func(kind activity.Kind) float64 {
		return (now.Times[kind] - opening.Times[kind]).Seconds() / made * 1e6
	}
	reading := spent(activity.Read) + spent(activity.Storage)
	return profile.Source{Work: reading + spent(activity.Decode) + spent(activity.Tokenise), Reading: reading,
		Bytes: float64(now.Bytes-opening.Bytes) / made, Tokens: tokens}, err
}

// take takes documents from a feed for some time, and returns the number of their tokens.
func take(ctx context.Context, f *feed.Feed, each time.Duration) (tokens int64, err error) {
	next := millrace.Ordinal(0)
	for end := time.Now().Add(each); time.Now().Before(end); {
		f.Want(next + ahead)
		b, err := f.Next(ctx)
		if err != nil {
			return tokens, err
		}
		var reqs []feed.Request
		for i := range b.Offers {
			o := &b.Offers[i]
			if next = o.Ordinal + 1; !o.Rejected && o.Refused == 0 && o.Lengths.Tokens > 0 {
				reqs = append(reqs, feed.Request{Ordinal: o.Ordinal, Length: o.Lengths.Tokens})
			}
		}
		err = f.Fetch(ctx, reqs, func(_ int, ids []uint32, _ string) error {
			tokens += int64(len(ids))
			return nil
		})
		if err != nil && len(dryrun.Faults(err)) == 0 { // bad records are a matter of check
			return tokens, err
		}
		if f.Release(next); b.End {
			break
		}
	}
	return tokens, nil
}

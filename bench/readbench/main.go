// Command readbench measures one format's reader on one core: bench/read.py runs it beside the format's own reader.
//
// It opens the shards below the paths as a run does, reads all records once for the check and to fill the page cache,
// and then reads them again and again for -time, in file order or at random. It prints one JSON object: records and
// bytes of documents, CPU seconds, allocations, and the CRC-32 of the first pass. A document is a text, or its token
// ids as four little-endian bytes each.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.format, "format", "", "the format's name in a mixture file")
	flag.StringVar(&o.text, "text", "", "the field of the text, for formats with fields")
	flag.BoolVar(&o.random, "random", false, "read at random instead of in file order")
	flag.IntVar(&o.group, "group", 1, "records of one random read")
	flag.DurationVar(&o.least, "time", 3*time.Second, "read at least so long")
	profile := flag.String("profile", "", "write a CPU profile of the measured part to this file")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	if err := run(o, flag.Args(), *profile); err != nil {
		fmt.Fprintln(os.Stderr, "readbench:", err)
		os.Exit(1)
	}
}

// run measures the files below the paths, and prints the figures.
func run(o options, paths []string, profile string) error {
	ctx := context.Background()
	files, err := open(ctx, o, paths)
	if err != nil {
		return err
	}
	defer files.close()
	out := result{Indexed: files.indexed.Seconds()}
	if err := files.check(ctx, &out); err != nil {
		return err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if err := files.measure(ctx, o, &out); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// Command fanout measures many sidecars that fetch from four loaders over TCP on the loopback device. The loaders are
// real ones, in a process of their own. The clients open connections and calls as a sidecar does, and arrive by
// themselves: an answer that is late delays no arrival. The aggregate rate of bytes is the same for all numbers.
package main

import (
	"flag"
	"fmt"
	"log"
	"strconv"
	"strings"
	"time"
)

func main() {
	serve := flag.String("serve", "", "serve as the loaders, with files in this directory")
	clients := flag.String("clients", "256,1024", "numbers of clients")
	beats := flag.String("beats", "16,64,256,1024", "numbers of clients that watch as a sidecar does")
	grouped := flag.String("groups", "256,1024", "numbers of clients in groups of 16")
	rate := flag.Float64("rate", 8, "MB of tokens a second, of all clients together")
	span := flag.Duration("span", 15*time.Second, "of a measurement")
	flag.Parse()
	if *serve != "" {
		if err := serveLoaders(*serve); err != nil {
			log.Fatal(err)
		}
		return
	}
	table("| clients | beats | connections a loader | calls a step | replies a step | steps "+
		"| client CPU, µs a step | loader CPU, µs a step | fetch p50, ms | p99 | step p50, ms | p99 "+
		"| loaders' RSS, KiB a connection |", 13)
	each(*clients, func(n int) error { return measure(n, false, *rate, *span) })
	each(*beats, func(n int) error { return measure(n, true, *rate, *span) })
	table("\n| clients | tier | connections a loader | calls to loaders a client's step | kB from loaders "+
		"| kB from constructors | client CPU, µs a step | loader CPU, µs | loader's call p50, ms | p99 "+
		"| step p50, ms | p99 |", 12)
	each(*grouped, func(n int) error { return measureGroups(n, false, *rate, *span) })
	each(*grouped, func(n int) error { return measureGroups(n, true, *rate, *span) })
}

func table(title string, columns int) {
	fmt.Println(title)
	fmt.Println("|" + strings.Repeat("---|", columns))
}

// each measures for each of the numbers in a list.
func each(numbers string, run func(n int) error) {
	if numbers == "" {
		return
	}
	for number := range strings.SplitSeq(numbers, ",") {
		n, err := strconv.Atoi(number)
		if err != nil {
			log.Fatalf("numbers of clients %q: %v", numbers, err)
		}
		if err := run(n); err != nil {
			log.Fatal(err)
		}
	}
}

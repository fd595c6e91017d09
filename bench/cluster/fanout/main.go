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
	beats := flag.String("beats", "16,64,256", "numbers of clients that listen to beats, too")
	rate := flag.Float64("rate", 8, "MB of tokens a second, of all clients together")
	span := flag.Duration("span", 15*time.Second, "of a measurement")
	flag.Parse()
	if *serve != "" {
		if err := serveLoaders(*serve); err != nil {
			log.Fatal(err)
		}
		return
	}
	fmt.Println("| clients | beats | connections a loader | calls a step | replies a step | steps " +
		"| client CPU, µs a step | loader CPU, µs a step | fetch p50, ms | p99 | step p50, ms | p99 " +
		"| loaders' RSS, KiB a connection |")
	fmt.Println("|" + strings.Repeat("---|", 13))
	for _, x := range []struct {
		numbers string
		beats   bool
	}{{*clients, false}, {*beats, true}} {
		for number := range strings.SplitSeq(x.numbers, ",") {
			n, err := strconv.Atoi(number)
			if err != nil {
				log.Fatalf("numbers of clients %q: %v", x.numbers, err)
			}
			if err := measure(n, x.beats, *rate, *span); err != nil {
				log.Fatal(err)
			}
		}
	}
}

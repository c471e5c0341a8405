// Command podconfig measures how full sets of pods become updates, beside
// upstream's pod configuration, in one process.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
)

func main() {
	file := flag.String("page", "", "page to write the table into; empty: print it")
	rounds := flag.Int("rounds", 7, "how often each case is measured; the median counts")
	flag.Parse()
	if err := run(context.Background(), *file, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "podconfig:", err)
		os.Exit(1)
	}
}

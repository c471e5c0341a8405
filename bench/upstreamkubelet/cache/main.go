// Command cache measures the pod status cache beside upstream's: the same
// calls, the same numbers of pods and of readers that wait.
//
// Each call is measured by package testing, five times in turns, and the
// least is taken: on a machine that does other things, what is more is theirs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/holdfast-dev/holdfast/bench/page"
)

// ctx is of the readers: they wait until they are woken.
var ctx = context.Background()

func main() {
	out := flag.String("page", "", "Markdown page to write the table into; empty: none")
	flag.Parse()
	text := report()
	fmt.Print(text)
	if *out == "" {
		return
	}
	if err := page.Replace(*out, "cache", text); err != nil {
		fmt.Fprintln(os.Stderr, "bench/cache:", err)
		os.Exit(1)
	}
}

// Command figures measures what a kubelet takes to say what its pods use, beside
// upstream's: the Summary and /metrics/resource of a full node.
//
// Both serve the same figures. Upstream's handlers get them ready made: what its kubelet
// does to have them, questions to the runtime and to cAdvisor and putting the answers
// together, is not measured, so that the comparison is in its favour. Ours are shown with
// a collection of its own before each request as well, though it makes one each ten
// seconds; there the readings of control groups are ready made.
//
// Each request is measured by package testing, five times in turns, and the least is
// taken: on a machine that does other things, what is more is theirs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/holdfast-dev/holdfast/bench/page"
)

// ctx is of all requests.
var ctx = context.Background()

func main() {
	out := flag.String("page", "", "Markdown page to write the tables into; empty: none")
	flag.Parse()
	text, err := report()
	if err == nil {
		fmt.Print(text)
		if *out != "" {
			err = page.Replace(*out, "figures", text)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/figures:", err)
		os.Exit(1)
	}
}

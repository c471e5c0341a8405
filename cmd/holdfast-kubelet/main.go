// Command holdfast-kubelet is "holdfast kubelet" in a program of its own, which takes
// 40 MiB less memory: no API server is in it.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-dev/holdfast/internal/kubeletcommand"
)

func main() {
	cmd := kubeletcommand.New("holdfast-kubelet")
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.Execute()
	if err == nil {
		return
	}
	if !errors.Is(err, kubeletcommand.ErrSaid) {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
	}
	os.Exit(1)
}

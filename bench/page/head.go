package page

import (
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-dev/holdfast/bench/procfs"
)

// Head is the first paragraph of a part: when and where it is measured, what is taken of
// how many rounds, such as "Median of 5", and the command to repeat it. It is to be asked
// for before the run, for the load.
func Head(part, taken string) (string, error) {
	m, err := procfs.ReadMachine(runtime.NumCPU())
	if err != nil {
		return "", fmt.Errorf("say where this is measured: %w", err)
	}
	return fmt.Sprintf("%s; %d cores; Linux %s; %s; load before the run %s. %s rounds. Repeat with `bench/run %s`.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), m.Cores, m.Kernel, runtime.Version(), m.Load, taken, part), nil
}

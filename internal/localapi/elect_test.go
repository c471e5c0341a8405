package localapi

import (
	"fmt"
	"testing"
	"time"
)

// TestElectAfterReplay starts a store again and again that has a long log to
// read, with an election that is tried all the time: it must wait for the log.
func TestElectAfterReplay(t *testing.T) {
	dir, runDir := t.TempDir(), t.TempDir()
	for round := range 10 {
		e, err := startEtcd(t.Context(), storeConfig{dir: dir, runDir: runDir, log: testLog, elect: time.Microsecond})
		if err != nil {
			t.Fatalf("start %d: %v", round, err)
		}
		client := e.client()
		for i := range 150 / (round + 1) { // below what makes a snapshot
			if _, err := client.Put(t.Context(), fmt.Sprintf("/key/%d/%d", round, i), "value"); err != nil {
				t.Fatal(err)
			}
		}
		_ = client.Close() // says only that it was closed
		e.stop()
	}
}

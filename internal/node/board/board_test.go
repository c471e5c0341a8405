package board_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/node/board"
)

func TestFaultsAreReplacedByFinder(t *testing.T) {
	b := board.New()
	b.SetFaults("folder", []control.Fault{{File: "b.yaml", Message: "one"}, {File: "a.yaml", Line: 2, Message: "two"}})
	b.SetFaults("objects", []control.Fault{{File: "a.yaml", Line: 1, Message: "three"}})
	b.SetFaults("folder", []control.Fault{{File: "c.yaml", Message: "four"}})
	var got []string
	for _, f := range b.Faults() {
		got = append(got, f.Message)
	}
	if len(got) != 2 || got[0] != "three" || got[1] != "four" {
		t.Errorf("got %v", got)
	}
}

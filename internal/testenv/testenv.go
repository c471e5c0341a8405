// Package testenv says what a test needs of the machine it runs on.
//
// A test that needs something the machine lacks is skipped, with the reason.
// Where the environment variable HOLDFAST_REQUIRE lists that thing
// (comma-separated), the skip is a failure, so that a test run on a full
// machine cannot pass by leaving tests out.
package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Need skips t unless the machine offers every named thing; it fails t where
// HOLDFAST_REQUIRE promises it. Names: root, loop, or that of a program in PATH.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		err := has(name)
		switch {
		case err == nil:
		case slices.Contains(required(), name):
			t.Fatalf("needs %s, which HOLDFAST_REQUIRE promises: %v", name, err)
		default:
			t.Skipf("needs %s: %v", name, err)
		}
	}
}

func required() []string { return strings.Split(os.Getenv("HOLDFAST_REQUIRE"), ",") }

func has(name string) error {
	switch name {
	case "root":
		if os.Geteuid() != 0 {
			return fmt.Errorf("user id is %d", os.Geteuid())
		}
		return nil
	case "loop":
		_, err := os.Stat("/dev/loop-control")
		return err
	default:
		_, err := exec.LookPath(name)
		return err
	}
}

// Package testenv says what a test needs of the machine it runs on.
//
// A test that needs something the machine lacks is skipped, with the reason.
// Where the environment variable HOLDFAST_REQUIRE lists that thing
// (comma-separated), the skip is a failure, so that a test run on a full
// machine cannot pass by leaving tests out. Where HOLDFAST_LAYER is "unit", every
// such test is skipped: that layer needs neither root nor any real part.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Need skips t unless the machine offers every named thing; it fails t where
// HOLDFAST_REQUIRE promises it. Names: root, loop, runtime (the bundled container
// runtime; see RuntimeDir), controlplane (see ControlPlane), one of Capabilities, or
// that of a program in PATH.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if os.Getenv("HOLDFAST_LAYER") == "unit" {
			t.Skipf("needs %s: the unit layer does without", name)
		}
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
	if probe, ok := capabilities()[name]; ok {
		return probe()
	}
	switch name {
	case "root":
		if os.Geteuid() != 0 {
			return fmt.Errorf("user id is %d", os.Geteuid())
		}
		return nil
	case "loop":
		_, err := os.Stat("/dev/loop-control")
		return err
	case "runtime":
		_, err := runtimeDir()
		return err
	case "controlplane":
		_, err := controlPlane()
		return err
	default:
		_, err := exec.LookPath(name)
		return err
	}
}

// RuntimeDir returns the folder of the bundled container runtime, absolute: where
// the variable HOLDFAST_RUNTIME_DIR says, or bin/runtime in this module. It needs
// "runtime" as Need does.
func RuntimeDir(t testing.TB) string {
	t.Helper()
	Need(t, "runtime")
	dir, err := runtimeDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func runtimeDir() (string, error) {
	dir := os.Getenv("HOLDFAST_RUNTIME_DIR")
	if dir == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "bin", "runtime")
	}
	if _, err := os.Stat(filepath.Join(dir, "containerd")); err != nil {
		return "", fmt.Errorf("no bundled runtime (runtime/build.sh makes it): %w", err)
	}
	return filepath.Abs(dir)
}

// ControlPlane returns the file of the control plane's programs, absolute:
// what the variable HOLDFAST_CONTROLPLANE says, or bin/tools/controlplane in
// this module. It needs "controlplane" as Need does.
func ControlPlane(t testing.TB) string {
	t.Helper()
	Need(t, "controlplane")
	file, err := controlPlane()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func controlPlane() (string, error) {
	file := os.Getenv("HOLDFAST_CONTROLPLANE")
	if file == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		file = filepath.Join(root, "bin", "tools", "controlplane")
	}
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("no control plane (make bin/tools/controlplane builds it): %w", err)
	}
	return filepath.Abs(file)
}

// moduleRoot returns the nearest folder above the test's that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the test's folder")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

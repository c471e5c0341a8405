package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An inventory is what a node could leave behind on its host.
type inventory struct {
	Mounts   []string
	Links    []string
	Rules    []string
	Cgroups  []string
	Forward  string
	RunDirs  []string
	NetNS    []string
	Programs []string
}

func takeInventory(t *testing.T) inventory {
	t.Helper()
	return inventory{
		Mounts:   lines(t, "findmnt", "-rno", "TARGET"),
		Links:    lines(t, "ip", "-br", "link"),
		Rules:    append(lines(t, "iptables-save", "-t", "filter"), lines(t, "iptables-save", "-t", "nat")...),
		Cgroups:  glob(t, "/sys/fs/cgroup/*/holdfast-*", "/sys/fs/cgroup/holdfast-*"),
		Forward:  read(t, "/proc/sys/net/ipv4/ip_forward"),
		RunDirs:  glob(t, "/run/holdfast/*"),
		NetNS:    glob(t, "/run/netns/*", "/var/run/netns/*"),
		Programs: processes(t, "holdfast-e2e-"),
	}
}

// same reports what differs from the host as it is now.
func (want inventory) same(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(takeInventory(t), want); diff != "" {
		t.Errorf("the host is now (-), was (+):\n%s", diff)
	}
}

// lines runs a command and returns its lines, sorted, without counters and
// comments.
func lines(t *testing.T, program string, args ...string) []string {
	t.Helper()
	out, err := run(t, "", program, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	var kept []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ":") && !strings.Contains(line, " - ") {
			continue
		}
		kept = append(kept, line)
	}
	slices.Sort(kept)
	return kept
}

func glob(t *testing.T, patterns ...string) []string {
	t.Helper()
	var found []string
	for _, p := range patterns {
		m, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, m...)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// processes returns the programs whose command line names text.
func processes(t *testing.T, text string) []string {
	t.Helper()
	var found []string
	for _, path := range glob(t, "/proc/[0-9]*/cmdline") {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		line := strings.ReplaceAll(string(data), "\x00", " ")
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

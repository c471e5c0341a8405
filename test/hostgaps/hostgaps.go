// Package hostgaps reads the table of what a kind of host cannot do, and says
// of a skipped test whether it may be skipped there.
package hostgaps

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Where the test for a missing capability runs instead.
const (
	Guest   = "guest"   // in the emulated machine of test/guest
	Nowhere = "nowhere" // and the reason says why
)

// A Gap is one line of the table.
type Gap struct {
	Host       string // kind of host, as HOLDFAST_HOST names it
	Capability string // as testenv.Need names it
	Instead    string // Guest or Nowhere
	Reason     string
}

// A Table is the committed list of gaps.
type Table []Gap

// Read reads a table: lines of host, capability, instead and reason; "#"
// begins a comment.
func Read(path string) (Table, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var table Table
	for i, line := range strings.Split(string(data), "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		bad := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s", path, i+1, fmt.Sprintf(format, args...))
		}
		if len(fields) < 4 {
			return nil, bad("want host, capability, where its tests run instead, and the reason")
		}
		gap := Gap{fields[0], fields[1], fields[2], strings.Join(fields[3:], " ")}
		if gap.Instead != Guest && gap.Instead != Nowhere {
			return nil, bad("%q is no place: want %s or %s", gap.Instead, Guest, Nowhere)
		}
		if gap.Host == Guest && gap.Instead == Guest {
			return nil, bad("the guest cannot stand in for itself")
		}
		if _, twice := table.Find(gap.Host, gap.Capability); twice {
			return nil, bad("%s of %s stands here twice", gap.Capability, gap.Host)
		}
		table = append(table, gap)
	}
	return table, nil
}

// Find returns what the table says of a capability on a kind of host.
func (t Table) Find(host, capability string) (Gap, bool) {
	for _, gap := range t {
		if gap.Host == host && gap.Capability == capability {
			return gap, true
		}
	}
	return Gap{}, false
}

var needs = regexp.MustCompile(`: needs (\S+): `)

// Missing returns the capability that testenv.Need missed, given what the skipped test
// printed. There is none where the test was skipped for a reason of its own.
func Missing(output string) (string, bool) {
	match := needs.FindStringSubmatch(output)
	if match == nil {
		return "", false
	}
	return match[1], true
}

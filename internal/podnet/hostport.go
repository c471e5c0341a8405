package podnet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The CNI portmap plugin, which serves hostPort, makes these chains in table nat
// when the first host port is asked for, shares them among all who use it on the
// host, and never removes them.
var hostPortChains = []string{"CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ"}

// Marker files in SharedDir.
const (
	forwardingWasOff    = "ip-forward-was-off"
	hostPortsWereAbsent = "hostport-chains-were-absent"
	hostPortsWereThere  = "hostport-chains-were-there"
)

func (n Net) marker(name string) string {
	dir := n.SharedDir
	if dir == "" {
		dir = "/run/holdfast"
	}
	return filepath.Join(dir, name)
}

func (n Net) marked(name string) (bool, error) {
	_, err := os.Stat(n.marker(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (n Net) mark(name string) error {
	path := n.marker(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

func (n Net) unmark(name string) error {
	err := os.Remove(n.marker(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// noteHostPortChains records, once a boot, whether the host port chains were
// there before us.
func (n Net) noteHostPortChains(ctx context.Context) error {
	for _, name := range []string{hostPortsWereAbsent, hostPortsWereThere} {
		if done, err := n.marked(name); done || err != nil {
			return err
		}
	}
	listing, err := iptables(ctx, "nat", "-S")
	if err != nil {
		return err
	}
	if strings.Contains(listing, "-N "+hostPortChains[0]+"\n") {
		return n.mark(hostPortsWereThere)
	}
	return n.mark(hostPortsWereAbsent)
}

// removeHostPortChains removes the chains that came after us, unless somebody
// else's host port is in them.
func (n Net) removeHostPortChains(ctx context.Context) error {
	ours, err := n.marked(hostPortsWereAbsent)
	if err != nil {
		return err
	}
	if ours {
		listing, err := iptables(ctx, "nat", "-S")
		if err != nil {
			return err
		}
		for _, args := range removals(listing) {
			if err := natRule(ctx, args); err != nil {
				return err
			}
		}
	}
	return errors.Join(n.unmark(hostPortsWereAbsent), n.unmark(hostPortsWereThere))
}

// removals returns the commands that take the host port chains out of a nat
// table listed by iptables -S; none if a host port is in use.
func removals(listing string) [][]string {
	var jumps, chains [][]string
	for line := range strings.Lines(listing) {
		words := splitWords(line)
		if len(words) < 2 {
			continue
		}
		inside := slices.Contains(hostPortChains, words[1])
		switch {
		case words[0] == "-N" && inside:
			chains = append(chains, []string{"-F", words[1]}, []string{"-X", words[1]})
		case words[0] == "-A" && words[1] == hostPortChains[0]:
			return nil // a host port
		case words[0] == "-A" && !inside && slices.ContainsFunc(hostPortChains, func(c string) bool { return after(words, "-j") == c }):
			jumps = append(jumps, append([]string{"-D"}, words[1:]...))
		}
	}
	// All are emptied before any is removed: they may refer to one another.
	slices.SortStableFunc(chains, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return append(jumps, chains...)
}

// splitWords splits a line of iptables -S at spaces outside double quotes; a
// backslash takes the next byte as it is.
func splitWords(line string) []string {
	var words []string
	var word strings.Builder
	inWord, quoted, escaped := false, false, false
	for _, r := range strings.TrimRight(line, "\n") {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped, inWord = true, true
		case r == '"':
			quoted, inWord = !quoted, true
		case r == ' ' && !quoted:
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}

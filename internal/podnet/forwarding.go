package podnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// forwardingFile holds 1 where the kernel forwards IPv4 between interfaces.
const forwardingFile = "/proc/sys/net/ipv4/ip_forward"

func (n Net) ensureForwarding() (changed bool, err error) {
	data, err := os.ReadFile(forwardingFile)
	if err != nil {
		return false, err
	}
	if strings.TrimSpace(string(data)) != "0" {
		return false, nil
	}
	// The marker comes first: a crash between the two must not forget.
	if err := n.mark(forwardingWasOff); err != nil {
		return false, err
	}
	return true, os.WriteFile(forwardingFile, []byte("1"), 0o644)
}

// restoreForwarding turns forwarding off if we turned it on. Where there is
// another bridge it stays on, with a note: Docker and virtual machines only turn
// it on when they start, and would be cut off.
func (n Net) restoreForwarding() (note string, err error) {
	ours, err := n.marked(forwardingWasOff)
	if err != nil || !ours {
		return "", errors.Join(err, n.removeSharedDir())
	}
	bridge, err := otherBridge(n.Bridge)
	if err != nil {
		return "", err
	}
	if bridge != "" {
		note = fmt.Sprintf("IP forwarding stays on: bridge %s may need it (turn off: sysctl net.ipv4.ip_forward=0)", bridge)
	} else if err := os.WriteFile(forwardingFile, []byte("0"), 0o644); err != nil {
		return "", err
	}
	return note, errors.Join(n.unmark(forwardingWasOff), n.removeSharedDir())
}

// removeSharedDir removes the folder of the markers if nothing else is in it.
func (n Net) removeSharedDir() error {
	dir := filepath.Dir(n.marker(forwardingWasOff))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || len(entries) > 0 {
		return err
	}
	return os.Remove(dir)
}

// otherBridge returns the name of some bridge other than ours, if there is one.
func otherBridge(ours string) (string, error) {
	links, err := interfaces()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		if l.Type() == "bridge" && l.Attrs().Name != ours {
			return l.Attrs().Name, nil
		}
	}
	return "", nil
}

package podnet

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A listener is a socket of the host that waits for anybody.
type listener struct {
	hostPort
	inode string
}

// States of sockets in /proc/net: TCP's LISTEN, and CLOSE, in which UDP sockets
// are that are connected to nobody.
var waitingState = map[string]string{"tcp": "0A", "udp": "07"}

// listening says, for each of the ports, who of the host's processes listens on it.
func listening(ports []hostPort) ([]string, error) {
	var found []string
	for _, protocol := range []string{"tcp", "udp"} {
		if !slices.ContainsFunc(ports, func(p hostPort) bool { return p.protocol == protocol }) {
			continue
		}
		for _, file := range []string{protocol, protocol + "6"} {
			data, err := os.ReadFile("/proc/thread-self/net/" + file)
			if errors.Is(err, fs.ErrNotExist) {
				continue // no IPv6
			}
			if err != nil {
				return nil, err
			}
			for _, l := range listeners(protocol, string(data)) {
				i := slices.IndexFunc(ports, l.overlaps)
				if i < 0 {
					continue
				}
				text := fmt.Sprintf("%s on host %s", holder(l.inode), ports[i])
				if !slices.Contains(found, text) {
					found = append(found, text)
				}
			}
		}
	}
	return found, nil
}

// listeners reads a file of /proc/net (proc(5)). A socket of IPv6 counts if it
// takes IPv4 too: if it is bound to every address.
func listeners(protocol, table string) []listener {
	var all []listener
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != waitingState[protocol] {
			continue
		}
		host, port, ok := strings.Cut(fields[1], ":")
		number, err := strconv.ParseUint(port, 16, 16)
		addr, okAddr := kernelAddr(host)
		if !ok || err != nil || !okAddr || addr.Is6() && !addr.IsUnspecified() {
			continue
		}
		l := listener{hostPort{protocol: protocol, port: int(number)}, fields[9]}
		if !addr.IsUnspecified() {
			l.addr = addr
		}
		all = append(all, l)
	}
	return all
}

// kernelAddr reads an address as /proc/net writes it: words of four bytes, each
// with the lowest byte first on the machines that we run on.
func kernelAddr(text string) (netip.Addr, bool) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		return netip.Addr{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	return addr.Unmap(), ok
}

// holder names the process that has a socket.
func holder(inode string) string {
	link := "socket:[" + inode + "]"
	open, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return "a process listens"
	}
	for _, path := range open {
		if target, err := os.Readlink(path); err != nil || target != link {
			continue
		}
		dir := filepath.Dir(filepath.Dir(path))
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			break
		}
		return fmt.Sprintf("%s (process %s) listens", strings.TrimSpace(string(name)), filepath.Base(dir))
	}
	return "a process listens"
}

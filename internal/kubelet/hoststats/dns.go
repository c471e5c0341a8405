package hoststats

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// Where the machine's resolver settings are.
const (
	resolvConf = "/etc/resolv.conf"
	// systemd-resolved writes the servers that it asks itself here.
	resolvedConf = "/run/systemd/resolve/resolv.conf"
)

// stubs are the addresses at which systemd-resolved answers the machine's own
// programs. No pod with a network of its own reaches them.
var stubs = []string{"127.0.0.53", "127.0.0.54"}

// A Resolver knows the machine's resolver settings. It may be used by any
// goroutine.
type Resolver struct {
	log             *slog.Logger
	plain, resolved string // paths; resolved is empty for a file that was named

	mu      sync.Mutex // guards the fields below
	last    podfiles.DNS
	failure string // of the last reading; empty: it went well
}

// NewResolver returns a Resolver of the settings in file; empty: the machine's. It
// reads nothing.
func NewResolver(file string, log *slog.Logger) *Resolver {
	if file == "" || file == resolvConf {
		return &Resolver{log: log, plain: resolvConf, resolved: resolvedConf}
	}
	return &Resolver{log: log, plain: file}
}

// DNS returns the settings as they are now, which change when the machine gets
// another lease or network. On a machine with systemd-resolved they are the
// servers behind it, as kubeadm configures the upstream kubelet; a file that was
// named is taken as it is. If they cannot be read, they are the last ones; a
// missing file of the machine's has none.
func (r *Resolver) DNS() podfiles.DNS {
	dns, err := r.read()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.failure != err.Error() {
			r.log.Warn("resolver settings cannot be read; pods get the last ones", "err", err)
		}
		r.failure = err.Error()
		return r.last
	}
	r.last, r.failure = dns, ""
	return dns
}

func (r *Resolver) read() (podfiles.DNS, error) {
	dns, err := readDNS(r.plain)
	if r.resolved == "" {
		return dns, err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return podfiles.DNS{}, nil
	}
	if err != nil || !slices.ContainsFunc(dns.Servers, func(s string) bool { return slices.Contains(stubs, s) }) {
		return dns, err
	}
	behind, err := readDNS(r.resolved)
	if errors.Is(err, fs.ErrNotExist) {
		return dns, nil
	}
	return behind, err
}

func readDNS(path string) (podfiles.DNS, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return podfiles.DNS{}, fmt.Errorf("resolver settings: %w", err)
	}
	return podfiles.ParseResolvConf(text), nil
}

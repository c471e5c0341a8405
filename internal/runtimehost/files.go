package runtimehost

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the template
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/template"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/podnet"
	"github.com/holdfast-dev/holdfast/internal/registries"
)

func (c Config) containerdDir() string { return filepath.Join(c.RootDir, "containerd") }
func (c Config) cniDir() string        { return filepath.Join(c.RootDir, "cni") }
func (c Config) configFile() string    { return filepath.Join(c.containerdDir(), "config.toml") }
func (c Config) certsDir() string      { return filepath.Join(c.containerdDir(), "certs.d") }
func (c Config) logFile() string       { return filepath.Join(c.RootDir, "logs", "containerd.log") }
func (c Config) socket() string        { return filepath.Join(c.RunDir, "containerd.sock") }
func (c Config) program(name string) string {
	return filepath.Join(c.RuntimeDir, name)
}

// network is the CNI network's name.
func (c Config) network() string { return "holdfast-" + c.InstanceID }

// leases is where the CNI plugin notes who has which address, in a folder for
// each network.
func (c Config) leases() string { return filepath.Join(c.RunDir, "leases") }

// programs are what the bundled runtime consists of.
var programs = []string{
	"containerd", "containerd-shim-runc-v2", "ctr", "runc", "demo",
	"cni/bridge", "cni/host-local", "cni/portmap",
}

// Programs returns what a runtime folder must hold, as paths in it.
func Programs() []string { return slices.Clone(programs) }

// checkPrograms reports every program that is missing.
func (c Config) checkPrograms() error {
	if !filepath.IsAbs(c.RuntimeDir) {
		return fmt.Errorf("runtime folder %q is not an absolute path", c.RuntimeDir)
	}
	var missing []string
	for _, name := range programs {
		if info, err := os.Stat(c.program(name)); err != nil || info.Mode()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the bundled runtime in %s lacks %s: build it again (make build), or set HOLDFAST_RUNTIME_DIR",
			c.RuntimeDir, strings.Join(missing, ", "))
	}
	return nil
}

//go:embed config.toml.tmpl
var configTemplate string

// render returns containerd's configuration. restrict says that the kernel
// refuses us negative OOM scores.
func (c Config) render(restrict bool) ([]byte, error) {
	// A JSON string is a TOML basic string.
	quote := func(s string) (string, error) {
		out, err := json.Marshal(s)
		return string(out), err
	}
	t, err := template.New("config.toml").Funcs(template.FuncMap{"quote": quote}).Parse(configTemplate)
	if err != nil {
		return nil, err
	}
	oomScore := -999 // the machine's memory is not freed by killing what runs the pods
	if restrict {
		oomScore = 0
	}
	var buf bytes.Buffer
	err = t.Execute(&buf, map[string]any{
		"Root":       filepath.Join(c.containerdDir(), "root"),
		"State":      filepath.Join(c.RunDir, "containerd"),
		"Socket":     c.socket(),
		"ShimDir":    filepath.Join(c.RunDir, "s"),
		"RuncRoot":   filepath.Join(c.RunDir, "runc"),
		"Runc":       c.program("runc"),
		"Shim":       c.program("containerd-shim-runc-v2"),
		"CNIBin":     c.program("cni"),
		"CNIConf":    filepath.Join(c.cniDir(), "net.d"),
		"Certs":      c.certsDir(),
		"PauseImage": PauseImage,
		"OOMScore":   oomScore,
		"Restrict":   restrict,
		"Handlers":   c.Handlers,
	})
	return buf.Bytes(), err
}

// conflist returns the CNI configuration of the pods' network. Masquerading is
// podnet's, with one rule for the subnet and not one chain for each pod. Leases
// lie below /run: after a reboot no pod holds an address. An mtu of 0 is the
// kernel's own.
func (c Config) conflist(mtu int) ([]byte, error) {
	return json.MarshalIndent(object{"cniVersion": cniVersion, "name": c.network(), "plugins": c.plugins(mtu)}, "", "  ")
}

// object is one of JSON.
type object = map[string]any

const cniVersion = "1.0.0"

// plugins are the CNI plugins, with their configuration, in the order in which
// they make a pod's network.
func (c Config) plugins(mtu int) []object {
	return []object{
		{
			"type":        "bridge",
			"bridge":      c.Bridge,
			"isGateway":   true,
			"ipMasq":      false,
			"hairpinMode": true,
			"mtu":         mtu,
			"ipam": object{
				"type":    "host-local",
				"dataDir": c.leases(),
				"ranges":  [][]object{{{"subnet": c.Subnet.Masked().String()}}},
				"routes":  []object{{"dst": "0.0.0.0/0"}},
			},
		},
		{
			"type":         "portmap",
			"capabilities": object{"portMappings": true},
			"backend":      "iptables",
			"snat":         true,
		},
	}
}

// write makes the folders and writes the two configuration files. hash changes
// whenever a running containerd must be replaced.
func (c Config) write() (hash string, err error) {
	restrict, err := lacksSysResource("/proc/self/status")
	if err != nil {
		return "", err
	}
	config, err := c.render(restrict)
	if err != nil {
		return "", err
	}
	mtu, err := podnet.UplinkMTU()
	if err != nil {
		return "", err
	}
	conflist, err := c.conflist(mtu)
	if err != nil {
		return "", err
	}
	netDir := filepath.Join(c.cniDir(), "net.d")
	for dir, mode := range map[string]os.FileMode{
		c.containerdDir():            0o711,
		c.certsDir():                 0o755,
		netDir:                       0o755,
		filepath.Dir(c.logFile()):    0o750,
		c.RunDir:                     0o711,
		filepath.Join(c.RunDir, "s"): 0o700,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return "", err
		}
	}
	for path, data := range map[string][]byte{
		c.configFile(): config,
		filepath.Join(netDir, "10-holdfast.conflist"): conflist,
	} {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			continue // no write, no sync: a warm start is quick
		}
		if err := atomicfile.Write(path, data, 0o644); err != nil {
			return "", err
		}
	}
	if err := registries.WriteHosts(c.certsDir(), c.Mirrors); err != nil {
		return "", err
	}
	program, err := identity(c.program("containerd"))
	if err != nil {
		return "", err
	}
	// A process reads which proxy to use but once.
	proxy := strings.Join(registries.ProxyOf(c.Proxy.Environ(os.Environ())), "\x00")
	return fmt.Sprintf("%x", sha256.Sum256(append(config, program+proxy...))), nil
}

// identity changes when the file at path is replaced. Hashing the content would
// cost a tenth of a second at each start.
func identity(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("%s: no inode", path)
	}
	return fmt.Sprintf("%s %d %d %d", path, st.Ino, info.Size(), info.ModTime().UnixNano()), nil
}

// capSysResource is CAP_SYS_RESOURCE's bit (capabilities(7)).
const capSysResource = 24

// lacksSysResource reports whether the process of the given status file lacks
// CAP_SYS_RESOURCE, without which the kernel refuses to lower an OOM score.
func lacksSysResource(statusFile string) (bool, error) {
	data, err := os.ReadFile(statusFile)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(data)) {
		value, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		caps, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return false, fmt.Errorf("%s: CapEff: %w", statusFile, err)
		}
		return caps&(1<<capSysResource) == 0, nil
	}
	return false, fmt.Errorf("%s: no line CapEff", statusFile)
}

// maxLogSize bounds containerd.log, in bytes; one older piece of it is kept.
const maxLogSize = 16 << 20

// boundLog moves the content of a log that has grown beyond limit to path.1.
// containerd has the file open for appending, so it is copied and cut, not
// renamed: its next line goes to the new end. A line written in between is lost.
func boundLog(path string, limit int64) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() <= limit {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(path+".1", data, 0o640); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

// complaints returns the last lines of containerd's log at path that are no mere
// information, or why there are none.
func complaints(path string) string {
	const size, most = 32 << 10, 5
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		if _, err := f.Seek(-size, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(data)), "\n"), func(line string) bool {
		return strings.Contains(line, " level=info ") || strings.Contains(line, " level=debug ")
	})
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

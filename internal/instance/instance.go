// Package instance says where one Holdfast instance keeps its things, and
// keeps two processes from running the same one.
//
// An instance is a root folder. It has an identity of its own, made at its
// first start, from which every name outside the folder is derived: the run
// folder, the bridge, the cgroup parent, the firewall chains. Two instances
// therefore run side by side, and removing one is exact.
package instance

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

// DefaultRoot is the root folder where none is named.
const DefaultRoot = "/var/lib/holdfast"

// ErrNone is returned by Open when the root folder holds no instance.
var ErrNone = errors.New("no Holdfast instance here")

// ErrNewer is returned by Open when a newer Holdfast wrote the root folder.
var ErrNewer = errors.New("written by a newer Holdfast")

// formatVersion is that of instance.json and of the folder layout it stands for.
const formatVersion = 1

// An Instance is one root folder and its identity. It does not change.
type Instance struct {
	Root   string       // absolute
	ID     string       // six hexadecimal digits
	Subnet netip.Prefix // of the pods
}

// record is instance.json. docs/formats.md describes it.
type record struct {
	Version int          `json:"version"`
	ID      string       `json:"id"`
	Subnet  netip.Prefix `json:"subnet"`
}

// Open returns the instance in the folder root. The error is ErrNone where
// there is none, ErrNewer where this Holdfast is too old for it.
func Open(root string) (*Instance, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("root folder: %w", err)
	}
	path := filepath.Join(root, "instance.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w (start one with \"holdfast up --root-dir %s\")", root, ErrNone, root)
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w (restore it from a backup, or remove %s and start anew)", path, err, root)
	}
	if r.Version > formatVersion {
		return nil, fmt.Errorf("%s has format %d and this program reads up to %d: %w (use that newer version)", path, r.Version, formatVersion, ErrNewer)
	}
	if r.ID == "" || !r.Subnet.IsValid() {
		return nil, fmt.Errorf("%s is damaged: it lacks an id or a subnet (restore it from a backup)", path)
	}
	return &Instance{Root: root, ID: r.ID, Subnet: r.Subnet}, nil
}

// OpenOrCreate is Open, and makes the instance where there is none. pick
// chooses the subnet of a new one.
func OpenOrCreate(root string, pick func() (netip.Prefix, error)) (*Instance, error) {
	in, err := Open(root)
	if !errors.Is(err, ErrNone) {
		return in, err
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("root folder: %w", err)
	}
	subnet, err := pick()
	if err != nil {
		return nil, fmt.Errorf("choose a subnet for the pods: %w", err)
	}
	in = &Instance{Root: root, ID: newID(), Subnet: subnet}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("make the root folder: %w", err)
	}
	return in, in.write()
}

// Move returns the instance with another subnet. Nothing of it may run.
func (in *Instance) Move(subnet netip.Prefix) (*Instance, error) {
	moved := &Instance{Root: in.Root, ID: in.ID, Subnet: subnet}
	return moved, moved.write()
}

func (in *Instance) write() error {
	data, err := json.MarshalIndent(record{formatVersion, in.ID, in.Subnet}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(in.Path("instance.json"), append(data, '\n'), 0o644)
}

func newID() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
}

// Path returns a path below the root folder.
func (in *Instance) Path(elem ...string) string {
	return filepath.Join(append([]string{in.Root}, elem...)...)
}

// Run returns a path below the folder of sockets and other things that do not
// outlive the machine's run. It is short: socket paths end at 107 bytes.
func (in *Instance) Run(elem ...string) string {
	return filepath.Join(append([]string{"/run/holdfast", in.ID}, elem...)...)
}

// ManifestDir is where pods are read from unless the user names another folder.
func (in *Instance) ManifestDir() string { return in.Path("manifests") }

// Kubeconfig is the administrator's credentials for the embedded API, mode 0600.
func (in *Instance) Kubeconfig() string { return in.Path("admin.kubeconfig") }

// ControlSocket is where the running process answers status and down.
func (in *Instance) ControlSocket() string { return in.Run("control.sock") }

// Bridge is the name of the pods' bridge.
func (in *Instance) Bridge() string { return "hf-" + in.ID }

// CgroupParent is the cgroup above all pods of the instance.
func (in *Instance) CgroupParent() string { return "/holdfast-" + in.ID }

// Gateway is the node's own address on the pods' bridge.
func (in *Instance) Gateway() netip.Addr { return in.Subnet.Masked().Addr().Next() }

package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/version"
)

// A Driver is what a driver says of this node.
type Driver struct {
	Name       string
	NodeID     string            // the driver's name for the node
	Topology   map[string]string // of the node, as the driver sees it
	MaxVolumes int64             // that it can attach here; 0: it does not say
}

// driver is one that has registered. It is not changed: another takes its place.
type driver struct {
	Driver
	endpoint string
	version  *version.Version
	can      map[spec.NodeServiceCapability_RPC_Type]bool
	asked    time.Time // what it says of this node; zero: it is to be asked again
}

// errNoDriver is returned when no driver of a name is registered.
var errNoDriver = errors.New("is not registered on this node: start its node plugin")

// Register takes a driver that listens at an endpoint, a path of a Unix socket,
// and asks it what it can do. The driver is told the error.
func (h *Host) Register(ctx context.Context, name, endpoint string, versions []string) error {
	if !isName(name) {
		return fmt.Errorf("%q is no name of a CSI driver", name)
	}
	highest, err := supported(versions)
	if err != nil {
		return fmt.Errorf("CSI driver %s: %w", name, err)
	}
	if other := h.find(name); other != nil && other.endpoint != endpoint && !other.version.LessThan(highest) {
		return fmt.Errorf("CSI driver %s is registered already at %s, with version %s", name, other.endpoint, other.version)
	}
	d := &driver{Driver: Driver{Name: name}, endpoint: endpoint, version: highest, asked: time.Now()}
	if err := h.ask(ctx, d); err != nil {
		return fmt.Errorf("CSI driver %s: %w", name, err)
	}
	h.mu.Lock()
	h.mu.drivers[name] = d
	h.mu.Unlock()
	h.cfg.Changed()
	// Now that the CSIDriver is held it is known here, if need be from the checkpoint,
	// and Attaches has it before the first pod comes. What cannot be had now is asked
	// for then.
	ctx, cancel := context.WithTimeout(ctx, settingsPatience)
	defer cancel()
	if _, err := h.settings(ctx, name); err != nil {
		h.cfg.Log.Debug("CSIDriver is not known yet", "object", name, "err", err)
	}
	return nil
}

// settingsPatience is how long a driver that registers waits for what the API says of
// it.
const settingsPatience = 5 * time.Second

// Deregister lets go of the driver that listens at an endpoint. Its volumes stay
// as they are.
func (h *Host) Deregister(name, endpoint string) {
	h.mu.Lock()
	if d := h.mu.drivers[name]; d != nil && d.endpoint == endpoint {
		delete(h.mu.drivers, name)
	}
	h.mu.Unlock()
	h.cfg.Changed()
}

// Drivers returns those that are registered, by name.
func (h *Host) Drivers() []Driver {
	h.mu.Lock()
	defer h.mu.Unlock()
	drivers := make([]Driver, 0, len(h.mu.drivers))
	for _, d := range h.mu.drivers {
		drivers = append(drivers, d.Driver)
	}
	slices.SortFunc(drivers, func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
	return drivers
}

func (h *Host) find(name string) *driver {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.drivers[name]
}

func (h *Host) driver(name string) (*driver, error) {
	if d := h.find(name); d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("CSI driver %s %w", name, errNoDriver)
}

// supported returns the highest version that both sides speak: 1.x, of which any
// does.
func supported(versions []string) (*version.Version, error) {
	var highest *version.Version
	for _, text := range versions {
		v, err := version.ParseGeneric(text)
		if err != nil {
			return nil, fmt.Errorf("version %q cannot be read: %w", text, err)
		}
		if v.Major() == 1 && (highest == nil || highest.LessThan(v)) {
			highest = v
		}
	}
	if highest == nil {
		return nil, fmt.Errorf("it speaks versions %q, and only 1.x can be used", versions)
	}
	return highest, nil
}

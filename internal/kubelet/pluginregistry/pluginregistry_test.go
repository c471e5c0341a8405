package pluginregistry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/kubelet/pluginregistry"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler takes every plugin, unless it is told otherwise, and notes what it did.
type handler struct {
	mu      sync.Mutex
	log     []string
	refusal error // of the next plugin
	changed chan struct{}
}

func (h *handler) Register(_ context.Context, p pluginregistry.Plugin) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refusal; err != nil {
		h.refusal = nil
		return err
	}
	h.note("register " + p.Name + " " + filepath.Base(p.Endpoint) + " " + strings.Join(p.Versions, ","))
	return nil
}

func (h *handler) Deregister(p pluginregistry.Plugin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note("deregister " + p.Name)
}

func (h *handler) note(what string) {
	h.log = append(h.log, what)
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// want waits until the handler has done this, in this order, since the last call.
func (h *handler) want(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, h.changed, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !slices.Equal(h.log, want) {
			return fmt.Errorf("the handler did %q, want %q", h.log, want)
		}
		h.log = nil
		return nil
	})
}

func eventually(t *testing.T, changed <-chan struct{}, check func() error) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatal(err)
		}
	}
}

type world struct {
	handler  *handler
	registry *pluginregistry.Registry
	folder   string // of sockets
	stop     func()
}

func start(t *testing.T, change func(*pluginregistry.Config)) *world {
	t.Helper()
	w := &world{handler: &handler{changed: make(chan struct{}, 1)}, folder: filepath.Join(t.TempDir(), "reg")}
	cfg := pluginregistry.Config{
		Dir: w.folder, Handlers: map[string]pluginregistry.Handler{"CSIPlugin": w.handler}, Log: slog.New(slog.DiscardHandler),
		FirstRetry: time.Millisecond, MaxRetry: 10 * time.Millisecond, Ask: time.Minute,
	}
	if change != nil {
		change(&cfg)
	}
	w.registry = pluginregistry.New(cfg)
	w.stop = runtest.Start(t, w.registry.Run)
	return w
}

// told waits for what the driver is told of its registration.
func told(t *testing.T, d *csidriver.Driver) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text, err := d.Registered(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func newDriver(t *testing.T, name string) *csidriver.Driver {
	t.Helper()
	return csidriver.New(csidriver.Config{Name: name, Dir: t.TempDir()})
}

func TestLife(t *testing.T) {
	w := start(t, nil)
	d := newDriver(t, "a")
	stop := d.Announce(t, w.folder)
	if text := told(t, d); text != "" {
		t.Fatal(text)
	}
	w.handler.want(t, "register a csi.sock 1.0.0")

	// Another socket takes its place.
	again := csidriver.New(csidriver.Config{Name: "a", Dir: t.TempDir(), Versions: []string{"1.1.0", "1.0.0"}})
	stop()
	stopAgain := again.Announce(t, w.folder)
	w.handler.want(t, "deregister a", "register a csi.sock 1.1.0,1.0.0")
	if text := told(t, again); text != "" {
		t.Fatal(text)
	}

	// The agent restarts: what is there registers again, and nothing is let go of.
	w.stop()
	w.handler.want(t)
	next := pluginregistry.New(pluginregistry.Config{Dir: w.folder, Handlers: map[string]pluginregistry.Handler{"CSIPlugin": w.handler}, Log: slog.New(slog.DiscardHandler)})
	runtest.Start(t, next.Run)
	w.handler.want(t, "register a csi.sock 1.1.0,1.0.0")
	stopAgain() // removes the socket
	w.handler.want(t, "deregister a")
}

func TestFolders(t *testing.T) {
	w := start(t, nil)
	below := filepath.Join(w.folder, "below", "deep")
	d := newDriver(t, "deep")
	d.Announce(t, below)
	w.handler.want(t, "register deep csi.sock 1.0.0")

	// These are nobody's sockets.
	if err := os.WriteFile(filepath.Join(w.folder, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hidden := newDriver(t, ".hidden")
	hidden.Announce(t, w.folder)
	last := newDriver(t, "last")
	last.Announce(t, w.folder)
	w.handler.want(t, "register last csi.sock 1.0.0")
	if calls := hidden.Calls(); len(calls) > 0 {
		t.Errorf("a hidden socket was asked: %v", calls)
	}
	// A socket may be seen before its driver listens, which is told until it does.
	deadline := time.Now().Add(10 * time.Second)
	for faults := w.registry.Faults(); len(faults) > 0; faults = w.registry.Faults() {
		if time.Now().After(deadline) {
			t.Fatal(faults)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestRefused(t *testing.T) {
	w := start(t, nil)
	device := csidriver.New(csidriver.Config{Name: "gpu", Dir: t.TempDir(), Type: "DevicePlugin"})
	stop := device.Announce(t, w.folder)
	const want = `plugins of type "DevicePlugin" cannot be used by this version, only CSIPlugin`
	if text := told(t, device); text != want {
		t.Errorf("the plugin is told %q, want %q", text, want)
	}
	eventually(t, nil, func() error {
		if faults := w.registry.Faults(); len(faults) != 1 || faults[0].Message != want || !strings.HasSuffix(faults[0].Object, "/gpu-reg.sock") {
			return fmt.Errorf("faults: %v", faults)
		}
		return nil
	})
	stop()

	// One that its handler refuses is tried again.
	w.handler.mu.Lock()
	w.handler.refusal = errors.New("not now")
	w.handler.mu.Unlock()
	d := newDriver(t, "a")
	d.Announce(t, w.folder)
	if text := told(t, d); text != "not now" {
		t.Errorf("the plugin is told %q", text)
	}
	w.handler.want(t, "register a csi.sock 1.0.0")
	if text := told(t, d); text != "" {
		t.Errorf("the plugin is told %q", text)
	}
	eventually(t, nil, func() error {
		if faults := w.registry.Faults(); len(faults) > 0 {
			return fmt.Errorf("faults: %v", faults)
		}
		return nil
	})
}

// One that cannot be told that it is registered is not, and is tried again.
func TestNotTold(t *testing.T) {
	w := start(t, nil)
	d := newDriver(t, "a")
	d.Fail("NotifyRegistrationStatus", 1, errors.New("busy"))
	d.Announce(t, w.folder)
	w.handler.want(t, "register a csi.sock 1.0.0", "deregister a", "register a csi.sock 1.0.0")
}

func TestDeadAndHanging(t *testing.T) {
	w := start(t, func(c *pluginregistry.Config) { c.Ask = 50 * time.Millisecond })
	if err := os.MkdirAll(w.folder, 0o750); err != nil {
		t.Fatal(err)
	}
	// A socket that nobody listens at, as a plugin leaves it that is killed.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(w.folder, "dead.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	// One that takes connections and says nothing.
	mute, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(w.folder, "mute.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mute.Close(); err != nil {
			t.Error(err)
		}
	}()
	hanging := newDriver(t, "hanging")
	goOn := hanging.Hang("GetInfo")
	hanging.Announce(t, w.folder)

	d := newDriver(t, "a")
	d.Announce(t, w.folder)
	w.handler.want(t, "register a csi.sock 1.0.0")
	eventually(t, nil, func() error {
		if faults := w.registry.Faults(); len(faults) != 3 {
			return fmt.Errorf("faults: %v", faults)
		}
		return nil
	})
	goOn()
	w.handler.want(t, "register hanging csi.sock 1.0.0")
}

// The agent ends though a plugin hangs.
func TestStopWhileHanging(t *testing.T) {
	w := start(t, nil)
	d := newDriver(t, "a")
	d.Hang("GetInfo")
	d.Announce(t, w.folder)
	eventually(t, nil, func() error {
		if len(d.Calls("GetInfo")) == 0 {
			return errors.New("the plugin is not asked")
		}
		return nil
	})
	w.stop()
	if faults := w.registry.Faults(); len(faults) > 1 {
		t.Error(faults)
	}
}

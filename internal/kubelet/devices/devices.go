// Package devices gives containers the devices that device plugins have on this
// machine, by upstream's protocol v1beta1.
//
// It reads what plugins say of their devices, and the pods that are to be admitted.
// It keeps which container has which devices in a file that an agent after this one
// reads, so that containers that go on running keep theirs. It promises:
//
//   - No device is given to two pods, for as long as either may use it.
//   - A container that starts again has the devices that it had.
//   - No container has a device before that is on the disk.
//   - Whoever admits pods never waits for a plugin: Admit says that it is not known
//     yet, and Decided rings when it is.
//
// A plugin's life, of which several may serve one resource:
//
//	registers ─► asked for its options ─► connected ─► says its devices, again and again
//	                                          │ its stream ends, or its socket goes
//	                                          ▼
//	                  nothing is allocatable, for 5 minutes the capacity stays
//
// One goroutine serves registrations, one allocates, one pod after the other, and
// each plugin has one that hears what it says. All methods may be called from any
// goroutine.
package devices

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/wake"
)

// recordFile is upstream's name for the file of what was given.
const recordFile = "kubelet_internal_checkpoint"

// Config says where plugins register and whom the devices are given to. Dir,
// Metrics and Log are required.
type Config struct {
	// Dir is the folder in which plugins register, at kubelet.sock, and have their
	// sockets. It is made with mode 0750 if it is not there.
	Dir string
	// Holders returns the pods, beside those that Admit is told of, that may still
	// use devices, and whether all of them are known yet. Nil: none do.
	Holders func() (pods sets.Set[types.UID], known bool)
	// Changed is called when Resources returns something else, and with the pods
	// that have devices whose health is another. It must not block. Nil: nobody is
	// told.
	Changed func(pods []types.UID)
	Metrics prometheus.Registerer // takes upstream's kubelet_device_plugin_*
	Log     *slog.Logger

	// Grace is how long the capacity of a resource stays though no plugin serves it.
	// Default: 5 min, as upstream's.
	Grace time.Duration
	// CallTimeout bounds a call to a plugin, but for PreStartContainer, which has
	// upstream's 30 s. Default: 2 min; upstream's kubelet waits for ever.
	CallTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Holders == nil {
		c.Holders = func() (sets.Set[types.UID], bool) { return nil, true }
	}
	if c.Changed == nil {
		c.Changed = func([]types.UID) {}
	}
	c.Grace = cmp.Or(c.Grace, 5*time.Minute)
	c.CallTimeout = cmp.Or(c.CallTimeout, 2*time.Minute)
	return c
}

// A Manager gives devices to containers.
type Manager struct {
	cfg     Config
	metrics *metrics

	connected chan *plugin // to Run, which hears what they say
	work      wake.Bell    // there are jobs
	decided   wake.Bell

	saving sync.Mutex // held while the file is written; taken before mu

	mu struct {
		sync.Mutex
		resources map[string]*served // by name
		given     assignments
		jobs      []*job
		waiting   sets.Set[types.UID] // pods with a job of Admit
		verdicts  map[types.UID]error // what came of it, until Admit is asked again
	}
}

// served is what is known of a resource.
type served struct {
	plugins []*plugin                    // that are connected, the newest last; it is the one that is asked
	said    bool                         // one of them has said which devices there are
	devices map[string]*pluginapi.Device // as last said
	stopped time.Time                    // since when no plugin is connected
	// prepares is whether the plugin, or the last that there was, wants to prepare
	// devices before each start of a container.
	prepares bool
}

// healthy returns the devices that may be given.
func (s *served) healthy() sets.Set[string] {
	out := sets.New[string]()
	if s == nil || !s.said {
		return out
	}
	for id, d := range s.devices {
		if d.GetHealth() == pluginapi.Healthy {
			out.Insert(id)
		}
	}
	return out
}

// plugin returns the plugin that is asked, or nil.
func (s *served) plugin() *plugin {
	if s == nil || len(s.plugins) == 0 {
		return nil
	}
	return s.plugins[len(s.plugins)-1]
}

// New reads what an earlier agent gave. A file that cannot be read is put aside, and
// an error is returned only if that fails: the containers that have devices would
// have to share them.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg.withDefaults(), metrics: newMetrics(cfg.Metrics), connected: make(chan *plugin), work: wake.NewBell(), decided: wake.NewBell()}
	m.mu.resources = map[string]*served{}
	m.mu.waiting = sets.New[types.UID]()
	m.mu.verdicts = map[types.UID]error{}
	kept, err := load(m.recordPath(), m.cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("read which devices were given: %w", err)
	}
	m.mu.given = kept.assignments()
	for _, name := range kept.Resources {
		m.mu.resources[name] = &served{stopped: time.Now()} // its plugin has to come again
	}
	return m, nil
}

func (m *Manager) recordPath() string { return filepath.Join(m.cfg.Dir, recordFile) }

// Decided rings when Admit may say more of the pods of which it was not known.
func (m *Manager) Decided() <-chan struct{} { return m.decided }

// Run serves registrations, hears plugins and allocates until ctx is done. Plugins
// have to register again with the next agent.
func (m *Manager) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { m.serve(ctx) })
	parts.Go(func() { m.allocate(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-m.connected:
			parts.Go(func() { m.hear(ctx, p) })
		}
	}
}

// wantsLocked returns how many devices a container asks for, by resource. Extended
// resources have requests that are their limits.
func (m *Manager) wantsLocked(c *v1.Container) map[string]int {
	wants := map[string]int{}
	for name, quantity := range c.Resources.Limits {
		if n := quantity.Value(); n > 0 && m.knownLocked(string(name)) {
			wants[string(name)] = int(n)
		}
	}
	return wants
}

// knownLocked reports whether a resource is a plugin's, or was.
func (m *Manager) knownLocked(name string) bool {
	return m.mu.resources[name] != nil || m.mu.given.has(name)
}

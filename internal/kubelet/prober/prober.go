// Package prober asks running containers, as often as their probes say, whether
// they have started, live and are ready, and keeps the answers.
//
// It reads the status cache and what the API was told of a pod; it writes
// events and its own answers, which any goroutine may ask for by container. One
// goroutine a probe does the asking, all of them started and awaited by Run.
// A changed answer is announced on Updates; the announcement carries no answer.
//
// An answer is known only once a probe's threshold was reached. Until then,
// and after a restart of the agent, those who ask keep to what was so before:
// a restart takes nobody out of service and kills nothing.
package prober

import (
	"context"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// handler asks a container once. ok is whether it is well, output why not, or a
// warning though it is. An error means that nothing is known. Calls run at the
// same time; each ends with its context and with the probe's own timeout.
type handler interface {
	Probe(ctx context.Context, probe *v1.Probe, c *v1.Container, containerID, podIP string) (ok bool, output string, err error)
}

// statuses knows what the runtime last reported of a pod. It does not block.
type statuses interface {
	Get(uid types.UID) (*observed.Status, error)
}

// told knows what status of a pod the API has, or will have. It does not block.
type told interface {
	Get(uid types.UID) (v1.PodStatus, bool)
}

// events records events; a record.EventRecorder is one.
type events interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// Config holds what a Prober needs. All fields are required but Metrics.
type Config struct {
	Handler  handler
	Statuses statuses
	Told     told
	Events   events
	HostIP   func() string         // address of pods in the node's own network
	Metrics  prometheus.Registerer // nil: nowhere
	Log      *slog.Logger
}

// A kind is what a probe is for.
type kind string

// The kinds, as events name them.
const (
	startup   kind = "Startup"
	liveness  kind = "Liveness"
	readiness kind = "Readiness"
)

// key names a probe.
type key struct {
	uid       types.UID
	container string
	kind      kind
}

// offset is where in its period a probe begins after a restart of the agent,
// so that not all begin at once. It is the same after the next restart.
func (k key) offset(period time.Duration) time.Duration {
	if period <= 0 {
		return 0
	}
	h := fnv.New64a()
	for _, part := range []string{string(k.uid), k.container, string(k.kind)} {
		_, _ = h.Write([]byte(part + "\x00")) // never fails
	}
	return time.Duration(h.Sum64() % uint64(period))
}

// A Prober keeps the probes of all pods going.
type Prober struct {
	cfg     Config
	metrics *metrics
	began   time.Time // containers that started before are from before a restart of the agent

	updates chan types.UID // unbuffered: the state behind it is what counts
	wake    wake.Bell      // Run has something to start or to announce

	mu        sync.Mutex // guards the fields below
	workers   map[key]*worker
	unstarted []*worker
	answers   map[string]map[kind]bool // by container ID
	changed   []types.UID              // to announce, each once
}

// New makes a Prober without pods; Run starts it.
func New(cfg Config) *Prober {
	return &Prober{
		cfg:     cfg,
		metrics: newMetrics(cfg.Metrics),
		began:   time.Now(),
		updates: make(chan types.UID),
		wake:    wake.NewBell(),
		workers: map[key]*worker{},
		answers: map[string]map[kind]bool{},
	}
}

// AddPod starts the probes of a pod's containers and sidecars. For probes that
// go on already it means that something about the pod changed, and they look
// whether it concerns them. It does not block.
func (p *Prober) AddPod(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			p.addLocked(pod, c)
		}
	}
	for i := range pod.Spec.Containers {
		p.addLocked(pod, &pod.Spec.Containers[i])
	}
}

func (p *Prober) addLocked(pod *v1.Pod, c *v1.Container) {
	for k, probe := range map[kind]*v1.Probe{startup: c.StartupProbe, liveness: c.LivenessProbe, readiness: c.ReadinessProbe} {
		if probe == nil {
			continue
		}
		name := key{pod.UID, c.Name, k}
		if w := p.workers[name]; w != nil {
			w.wake.Ring()
			continue
		}
		w := newWorker(p, name, pod, c, probe)
		p.workers[name] = w
		p.unstarted = append(p.unstarted, w)
	}
	p.wake.Ring()
}

// Terminate ends the probes that could have a container killed: one that is
// being stopped may well fail them. Readiness goes on until RemovePod, so that
// a pod that ends is taken out of service when it says so.
func (p *Prober) Terminate(uid types.UID) { p.remove(uid, startup, liveness) }

// RemovePod ends all probes of a pod and forgets their answers. It does not
// wait for a probe that is under way; what that finds is thrown away.
func (p *Prober) RemovePod(uid types.UID) { p.remove(uid, startup, liveness, readiness) }

func (p *Prober) remove(uid types.UID, kinds ...kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, w := range p.workers {
		if name.uid != uid {
			continue
		}
		for _, k := range kinds {
			if name.kind != k {
				continue
			}
			delete(p.workers, name)
			p.forgetLocked(w.answerID, k)
			w.removed = true
			if w.cancel != nil {
				w.cancel()
			}
		}
	}
}

// Startup reports whether a container has started, by its startup probe. known
// is false before the first result.
func (p *Prober) Startup(containerID string) (healthy, known bool) {
	return p.answer(containerID, startup)
}

// Liveness reports whether a container lives. known is false before the first
// result.
func (p *Prober) Liveness(containerID string) (healthy, known bool) {
	return p.answer(containerID, liveness)
}

// Readiness reports whether a container is ready. known is false before the
// first result.
func (p *Prober) Readiness(containerID string) (healthy, known bool) {
	return p.answer(containerID, readiness)
}

func (p *Prober) answer(containerID string, k kind) (healthy, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	healthy, known = p.answers[containerID][k]
	return healthy, known
}

// Updates announces pods of which an answer changed since they were announced
// last. However slow its reader is, no pod is lost and none piles up. It is
// never closed.
func (p *Prober) Updates() <-chan types.UID { return p.updates }

// Run probes until ctx is done and all probes have ended.
func (p *Prober) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	var offered types.UID
	for {
		for _, w := range p.takeUnstarted() {
			wctx, cancel := context.WithCancel(ctx)
			if !p.arm(w, cancel) {
				cancel()
				continue
			}
			wg.Go(func() { defer cancel(); w.run(wctx) })
		}
		if offered == "" {
			offered = p.takeChanged()
		}
		var announce chan<- types.UID
		if offered != "" {
			announce = p.updates
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case announce <- offered:
			offered = ""
		}
	}
}

func (p *Prober) takeUnstarted() []*worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.unstarted
	p.unstarted = nil
	return taken
}

// arm gives a worker what ends it, unless it was removed before it began.
func (p *Prober) arm(w *worker, cancel context.CancelFunc) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.cancel = cancel
	return !w.removed
}

// takeChanged takes the pod to announce next, if there is one. An answer that
// changes while its pod is being offered has the pod announced again: its
// reader may have asked already.
func (p *Prober) takeChanged() types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.changed) == 0 {
		return ""
	}
	uid := p.changed[0]
	p.changed = p.changed[1:]
	return uid
}

// Package podcertificate gets certificates for pods that have some projected into
// a volume: it makes the key, asks a signer by a PodCertificateRequest, and asks
// again before the certificate is due.
//
// Keys and certificates are in memory alone. After a restart of the agent
// everything is asked for anew, and a pod that has a volume goes on with what lies
// there until then, as upstream's does. What a signer denied or could not do stays
// so for the pod's life: whoever made the request must make another pod.
//
// All methods may be called by any goroutine.
package podcertificate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/retry"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

const (
	firstRetry = time.Second
	// spread is over how long the requests of many pods whose certificates are due
	// at once are spread: upstream's.
	spread = 5 * time.Minute
	// overdue is how late a new certificate may be before somebody is told: upstream's.
	overdue = 10 * time.Minute
	// look is how often it is checked whether a certificate is due: a clock may be
	// set meanwhile.
	look = time.Minute
)

// Config says whom a Manager asks.
type Config struct {
	Client   certificatesclient.PodCertificateRequestsGetter
	Accounts coreclient.ServiceAccountsGetter
	Node     string
	// NodeUID returns the node's UID, or an error before the API knows the node.
	NodeUID  func(ctx context.Context) (types.UID, error)
	Recorder record.EventRecorder // of events about pods
	Log      *slog.Logger
	// MaxRetry is the longest pause between two tries to reach the API. Default 1 minute.
	MaxRetry time.Duration
}

// A Manager has certificates issued for the pods that were asked about.
type Manager struct {
	cfg  Config
	wake wake.Bell // some projection waits to be started

	mu struct {
		sync.Mutex
		projections map[key]*projection
		pending     []*projection // made, not started yet
		subscribers []func(types.UID)
	}
}

// A key names one source of one projected volume.
type key struct {
	pod    types.UID
	volume string
	index  int
}

// A projection is one certificate that a pod wants, from the first question to
// Release:
//
//	asking ──► waiting ──► issued ──(due)──► asking
//	              │ ▲
//	              │ └ the request was deleted: asking
//	              └──► refused (for good)
//
// While another is asked for, the certificate before it serves. The manager's lock
// guards the fields below source.
type projection struct {
	key
	owner  *v1.Pod
	source *v1.PodCertificateProjection

	released bool
	cancel   context.CancelFunc // nil: not started yet
	issued   *podvolumes.Certificate
	refused  error // for good
	failing  error // why there was no success yet; nil: nothing went wrong
}

// New makes a Manager. It asks for nothing before Run.
func New(cfg Config) *Manager {
	cfg.MaxRetry = cmp.Or(cfg.MaxRetry, time.Minute)
	m := &Manager{cfg: cfg, wake: wake.NewBell()}
	m.mu.projections = map[key]*projection{}
	return m
}

// Subscribe has changed called whenever a pod has another certificate, or will
// have none. It must not block. Subscribe before Run.
func (m *Manager) Subscribe(changed func(uid types.UID)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.subscribers = append(m.mu.subscribers, changed)
}

// Run gets certificates until ctx is done and all its goroutines have ended.
func (m *Manager) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	for {
		m.mu.Lock()
		start := m.mu.pending
		m.mu.pending = nil
		for _, p := range start {
			if p.released {
				continue
			}
			own, cancel := context.WithCancel(ctx)
			p.cancel = cancel
			work.Go(func() {
				defer cancel()
				m.keep(own, p)
			})
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
	}
}

// errPending is why there is no certificate where nothing went wrong.
var errPending = errors.New("it is not issued yet")

// PodCertificate returns the certificate for a source of a pod's projected
// volume, and has it issued and kept fresh from the first call until Release. It
// does not wait: an error says why there is none yet.
func (m *Manager) PodCertificate(_ context.Context, pod *v1.Pod, volume string, index int) (*podvolumes.Certificate, error) {
	source, err := sourceOf(pod, volume, index)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{pod.UID, volume, index}
	p := m.mu.projections[k]
	if p == nil {
		p = &projection{key: k, owner: pod, source: source}
		m.mu.projections[k] = p
		m.mu.pending = append(m.mu.pending, p)
		m.wake.Ring()
	}
	switch {
	case p.refused != nil:
		return nil, p.refused
	case p.issued != nil:
		return p.issued, nil
	}
	return nil, fmt.Errorf("signer %s: %w", source.SignerName, cmp.Or(p.failing, errPending))
}

func sourceOf(pod *v1.Pod, volume string, index int) (*v1.PodCertificateProjection, error) {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume })
	if i < 0 || pod.Spec.Volumes[i].Projected == nil || index >= len(pod.Spec.Volumes[i].Projected.Sources) ||
		pod.Spec.Volumes[i].Projected.Sources[index].PodCertificate == nil {
		return nil, fmt.Errorf("volume %q has no podCertificate as its source %d", volume, index)
	}
	return pod.Spec.Volumes[i].Projected.Sources[index].PodCertificate, nil
}

// Release forgets the certificates of a pod.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, p := range m.mu.projections {
		if k.pod != uid {
			continue
		}
		p.released = true
		if p.cancel != nil {
			p.cancel()
		}
		delete(m.mu.projections, k)
	}
}

// keep has certificates issued, one after the other, until ctx is done or the
// signer refuses.
func (m *Manager) keep(ctx context.Context, p *projection) {
	log := m.cfg.Log.With("pod", p.owner.Namespace+"/"+p.owner.Name, "volume", p.volume)
	stopWarning := func() {}
	defer func() { stopWarning() }()
	for failures := 0; ctx.Err() == nil; {
		got, err := m.issue(ctx, p)
		var no *refusal
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &no):
			log.Warn("certificate refused", "err", err)
			m.cfg.Recorder.Eventf(p.owner, v1.EventTypeWarning, no.kind, "%s", no.Error())
			m.set(p, func() { p.refused = no })
			return
		case err != nil:
			failures++
			if failures == 1 {
				log.Warn("certificate cannot be had yet; trying again", "err", err)
			}
			m.mu.Lock()
			p.failing = err // the volume manager asks again by itself
			m.mu.Unlock()
			retry.Sleep(ctx, retry.Pause(failures, firstRetry, m.cfg.MaxRetry))
			continue
		}
		failures = 0
		stopWarning()
		stopWarning = m.warn(p, got)
		m.set(p, func() { p.issued, p.failing = &got.Certificate, nil })
		due := got.refresh.Add(jitter(p.key))
		for now := time.Now(); now.Before(due) && retry.Sleep(ctx, min(due.Sub(now), look)); now = time.Now() {
			continue
		}
	}
}

// set changes what is known of a projection and tells the subscribers.
func (m *Manager) set(p *projection, change func()) {
	m.mu.Lock()
	change()
	subscribers := slices.Clone(m.mu.subscribers)
	m.mu.Unlock()
	for _, changed := range subscribers {
		changed(p.pod)
	}
}

// warn has an event written when a certificate is still in use long after it was
// due, and when it has expired. It ends with stop.
func (m *Manager) warn(p *projection, c issued) (stop func()) {
	late := time.AfterFunc(time.Until(c.refresh.Add(overdue)), func() {
		m.cfg.Recorder.Event(p.owner, v1.EventTypeWarning, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	})
	expired := time.AfterFunc(time.Until(c.expires), func() {
		m.cfg.Recorder.Event(p.owner, v1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
	})
	return func() {
		late.Stop()
		expired.Stop()
	}
}

// jitter returns how much later than it could a projection is renewed: always as
// much, so that it is the same after a restart.
func jitter(k key) time.Duration {
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s/%s/%d", k.pod, k.volume, k.index)
	return time.Duration(hash.Sum32()) * time.Second / 1000 % spread
}

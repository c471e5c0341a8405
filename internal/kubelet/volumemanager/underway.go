package volumemanager

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// long is how long something is under way before it is said to be: most of what
// takes longer waits for a disk or a server that does not answer.
const long = 10 * time.Second

// doing is what is being done to a pod's volumes. The zero value is nothing.
type doing struct {
	what  string // "set up volume \"data\""
	since time.Time
}

// A longError says what has been under way for too long.
type longError struct{ doing }

func (e *longError) Error() string {
	return e.what + ": it takes long: the disk or the server behind it may not answer"
}

// A part is a part of a volume that is being made a mount of its own. One try
// at most is under way for each, whoever asks for it however often: more would
// not help where one hangs.
type part struct {
	spec    podvolumes.SubPath
	since   time.Time
	started bool
	done    chan struct{} // closed at the end; path and err are set then
	path    string
	err     error
}

func describePart(s podvolumes.SubPath) string {
	return fmt.Sprintf("subPath %q of %s", s.Path, podvolumes.Describe(s.Volume))
}

// bindPart makes the one try for a part.
func (m *Manager) bindPart(ctx context.Context, st *podState, p *part) {
	path, err := m.cfg.SubPaths.BindSubPath(ctx, p.spec)
	m.mu.Lock()
	defer m.mu.Unlock()
	p.path, p.err = path, err
	delete(st.parts, p.spec)
	close(p.done)
	m.wake.Ring() // the pod may wait for it to be unmounted
}

// begin notes what is done to a pod from here on.
func (m *Manager) begin(st *podState, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.doing = doing{what, time.Now()}
	if what == "" {
		st.doing = doing{}
	}
}

// underWayLocked returns what is being done to a pod.
func (st *podState) underWayLocked() []doing {
	var all []doing
	if st.doing.what != "" {
		all = append(all, st.doing)
	}
	for _, p := range st.parts {
		all = append(all, doing{describePart(p.spec), p.since})
	}
	return all
}

// longLocked returns an error for each that has taken too long.
func (st *podState) longLocked() []error {
	var errs []error
	for _, d := range st.underWayLocked() {
		if time.Since(d.since) >= long {
			errs = append(errs, &longError{d})
		}
	}
	return errs
}

// logLong tells that a pod's volumes take long, once a try.
func (m *Manager) logLong(st *podState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st.doing.what != "" {
		m.cfg.Log.Warn("volume operation takes long; other pods go on", "podUID", st.uid, "op", st.doing.what)
	}
}

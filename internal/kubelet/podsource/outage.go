package podsource

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
)

// An outage is the time in which the server does not answer. It is logged when
// it begins and when it ends.
type outage struct {
	log *slog.Logger

	// mu guards what is below.
	mu       sync.Mutex
	err      error     // nil: there is none
	since    time.Time // with err
	lastGood time.Time // when the server last answered; zero: never
}

func (o *outage) begin(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.since = time.Now()
		o.log.Warn("pods cannot be read from the API: what ran stays", "err", err)
	}
	o.err = err
}

// good notes that the server answers.
func (o *outage) good() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastGood = time.Now()
	if o.err != nil {
		o.err = nil
		o.log.Info("pods are read from the API again")
	}
}

func (o *outage) faults() []fault.Fault {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return nil
	}
	return []fault.Fault{{Object: "Pods", Message: o.messageLocked(), Since: o.since}}
}

func (o *outage) messageLocked() string {
	return fmt.Sprintf("cannot be read from the API: %v; what ran stays", o.err)
}

// state fills in what the outage knows.
func (o *outage) state(s *State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.LastGood = o.lastGood
	if o.err != nil {
		s.Failed, s.Since = o.messageLocked(), o.since
	}
}

// Package manifesturl asks a URL for manifests of pods and publishes, each time
// it changes, the full set of documents that are in force and what is wrong.
//
// It reads the URL, the files that its source names and, at start, the state
// file; it writes only the state file. Its one promise is that no pod leaves the
// set by mistake. A pod goes when a whole and good answer, with 200 and at least
// one document or an explicit empty list, does not name it. Nothing else removes
// one: no empty, cut or garbled body, no web page, no error of the server or the
// network, no wrong signature, and no restart, as the state file keeps the last
// good documents.
//
// Until there was an answer, in this run or in an earlier one, the set is not
// known: nothing is removed on its word.
//
// What to do is decided by the pure function [fold]. Run owns all state, in one
// goroutine; Publish is called from it, one call at a time. State may be called
// by anybody at any time.
package manifesturl

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

const (
	firstPause  = time.Second     // after a first failure
	longestWait = time.Hour       // that a server may ask for
	longestLull = 5 * time.Minute // between two tries, unless the period is longer
	head        = 2 * time.Second // what the server is given at a start, before the last good copy is used
)

// A Set is everything the URL says. It is the receiver's to keep and to read;
// its contents are shared and never changed.
type Set struct {
	// Documents are in force: at most one for each key, all pods, by line. Their
	// File is the address that they came from, without secrets.
	Documents []manifest.Document
	// Faults say what is wrong, each with the time since when. One without a
	// line is of the URL as a whole.
	Faults []manifest.Fault
	// Known is false until there was an answer, in this run or in an earlier one
	// that the state file remembers.
	Known bool
	// Kept are the documents in force that the last answer did not have in good
	// order; all of them if the last request brought no answer.
	Kept []manifest.Key
}

func (s Set) equal(o Set) bool {
	return s.Known == o.Known &&
		slices.EqualFunc(s.Documents, o.Documents, manifest.Document.Equal) &&
		slices.Equal(s.Faults, o.Faults) && slices.Equal(s.Kept, o.Kept)
}

// A State is how the source is now.
type State struct {
	Set
	// Address is the URL without secrets.
	Address string
	// Failed is why there is no good answer now: none came, or one that may be a
	// part of what was meant. Since is since when. Empty and zero: there is one.
	Failed string
	Since  time.Time
	// Restored is whether the documents are the last good copy from the disk: the
	// URL has not answered since the start.
	Restored bool
	// LastGood is when the URL last answered well, in an earlier run perhaps;
	// zero: never. After a restart it is when the documents were last changed.
	LastGood time.Time
	// ETag is that of the last good answer, if it had one.
	ETag string
}

// Config says what to ask.
type Config struct {
	Source Source
	// Node spreads the requests of many nodes: what it is does not matter.
	Node string
	// StateFile keeps the last good documents over a restart. Its folder must
	// exist; the file is written with mode 0600. Empty: nothing is kept.
	StateFile string
	// Parser reads the answers.
	Parser *manifest.Parser
	// Check, if given, returns what else is wrong with a good document.
	Check func(d manifest.Document) []manifest.Fault
	// Log gets one line for each fault and one when it is gone.
	Log *slog.Logger
	// Metrics takes the collectors; nil means none.
	Metrics prometheus.Registerer
	// Publish receives the set whenever it is another one. It should not block:
	// the URL is not asked meanwhile.
	Publish func(ctx context.Context, s Set)
}

// A URL follows one URL.
type URL struct {
	cfg     Config
	log     *slog.Logger
	address string
	get     func(ctx context.Context, known validators) (response, error)
	metrics *metrics

	// Run's own.
	state     state
	published bool
	known     validators        // of the answer that is in force as a whole
	parsed    [sha256.Size]byte // the answer that state is of
	failures  int               // in a row
	asked     int
	keySum    [sha256.Size]byte // of the public keys
	saved     []byte

	mu struct {
		sync.Mutex
		state State
	}
}

// New returns a follower of cfg.Source, which must have been found good by its
// Check. It starts nothing.
func New(cfg Config) (*URL, error) {
	to, err := parseTarget(cfg.Source.URL)
	if err != nil {
		return nil, err
	}
	u := &URL{
		cfg: cfg, address: to.address, log: cfg.Log.With("url", to.address),
		get: (&client{cfg.Source, to}).get, metrics: newMetrics(cfg.Metrics),
	}
	u.mu.state.Address = to.address
	return u, nil
}

// State tells how the source is.
func (u *URL) State() State {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.state
}

// Run asks until ctx is done. It returns nil then. A state file of a newer
// release is an error: writing it over would lose what that release kept.
func (u *URL) Run(ctx context.Context) error {
	if err := u.restore(); err != nil {
		return err
	}
	within := u.cfg.Source.timeout()
	if u.state.known {
		within = min(within, head) // the pods of the copy do not wait long for news
	}
	pause := u.ask(ctx, within)
	for retry.Sleep(ctx, pause) {
		pause = u.ask(ctx, u.cfg.Source.timeout())
	}
	return nil
}

// ask asks once, decides, saves and publishes, and returns the pause until the
// next time.
func (u *URL) ask(ctx context.Context, within time.Duration) time.Duration {
	u.asked++
	next, err := u.next(ctx, within)
	if ctx.Err() != nil {
		return 0 // stopped meanwhile: that is no fault of the server
	}
	u.failures++
	if err == nil {
		u.failures = 0
	}
	u.metrics.count(err)
	u.report(u.state.set, next.set)
	changed := !u.published || !next.set.equal(u.state.set)
	u.state = next
	if err == nil {
		u.save()
	}
	u.note()
	if changed {
		u.published = true
		u.metrics.observe(next.set)
		u.cfg.Publish(ctx, next.set)
	}
	return u.pause(err)
}

// next returns the state after one request, and why it brought no answer.
func (u *URL) next(ctx context.Context, within time.Duration) (state, error) {
	u.forgetKeys()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := u.get(ctx, u.known)
	if err == nil && r.unchanged {
		return u.state.unchanged(time.Now()), nil
	}
	if err != nil {
		return u.unanswered(err), err
	}
	next := u.state.unchanged(time.Now())
	if sum := sha256.Sum256(slices.Concat(r.body, r.signature)); sum != u.parsed {
		a, err := u.parse(r)
		if err != nil {
			return u.unanswered(err), err
		}
		u.parsed = sum
		next = fold(u.state, a, time.Now())
	}
	u.known = validators{}
	if len(next.faults) == 0 {
		u.known = r.validators // else "the same again" would say too little after a restart
	}
	return next, nil
}

// forgetKeys asks for the whole answer once after the public keys have become
// others, so that what is in force is signed by one of these.
func (u *URL) forgetKeys() {
	data, err := u.cfg.Source.keyFile()
	if err != nil {
		return // the request will say it
	}
	if sum := sha256.Sum256(data); sum != u.keySum {
		u.keySum, u.known = sum, validators{}
	}
}

// unanswered is the state after a request that brought no answer.
func (u *URL) unanswered(err error) state {
	f := manifest.Fault{File: u.address, Reason: manifest.ReasonUnreadable, Message: err.Error(), Hint: "what ran stays"}
	if why, ok := errors.AsType[*failure](err); ok && why.hint != "" {
		f.Hint = why.hint + "; what ran stays"
	}
	if !u.state.known {
		f.Message = "has never answered: " + f.Message
	}
	return u.state.unanswered(f, time.Now())
}

// pause returns how long to wait after a request: the period, or after failures
// a second, twice as long each time, and what the server asks for.
func (u *URL) pause(err error) time.Duration {
	period := u.cfg.Source.period()
	if err == nil {
		return u.spread(period)
	}
	longest := max(period, min(10*period, longestLull))
	pause := u.spread(retry.Pause(u.failures, min(firstPause, period), longest))
	if why, ok := errors.AsType[*failure](err); ok {
		pause = max(pause, why.wait)
	}
	return pause
}

// spread makes a pause up to a tenth longer or shorter, so that many nodes do
// not ask at one moment. It comes from a hash of who asks, and so is the same in
// each run.
func (u *URL) spread(pause time.Duration) time.Duration {
	h := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(u.cfg.Node), uint64(u.asked)))
	part := float64(binary.BigEndian.Uint64(h[:])>>11) / (1 << 53) // 0 to 1
	return time.Duration(float64(pause) * (0.9 + 0.2*part))
}

// note keeps what State tells.
func (u *URL) note() {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := &u.mu.state
	s.Set, s.ETag = u.state.set, u.known.ETag
	s.Failed, s.Since = u.state.failed()
	if u.state.outage == nil {
		s.Restored = false
	}
	if s.Failed == "" {
		s.LastGood = time.Now()
		u.metrics.good(s.LastGood)
	}
}

// report logs what began and what ended.
func (u *URL) report(before, now Set) {
	for _, f := range now.Faults {
		if !slices.ContainsFunc(before.Faults, f.Same) {
			u.log.Warn("the manifest URL is not good; what ran stays", "fault", f.String())
		}
	}
	for _, f := range before.Faults {
		if !slices.ContainsFunc(now.Faults, f.Same) {
			u.log.Info("the manifest URL is good again, or says it no more", "fault", f.String())
		}
	}
}

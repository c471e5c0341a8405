package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/certstore"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

const (
	// look is how often it is checked whether a certificate is due: a clock may be
	// set meanwhile, and somebody may put another pair into the folder.
	look = time.Minute
	// firstRetry and lastRetry bound the pauses after the API could not be asked.
	firstRetry, lastRetry = time.Second, time.Minute
	// firstRefused and lastRefused bound the pauses after somebody said no.
	firstRefused, lastRefused = time.Minute, time.Hour
)

// keeperConfig says what a keeper keeps.
type keeperConfig struct {
	what     string // for people: client certificate
	store    *certstore.Store
	signer   string
	usage    certificatesv1.KeyUsage // beside digital signature
	template func() *x509.CertificateRequest
	// first is the pair that somebody else made, which counts until the store has
	// a later one. Nil: there is none.
	first *tls.Certificate
	// renew is whether another is asked for when the one in use is due, or is for
	// other names than the template. Without it only the first is asked for.
	renew bool
	// client returns how a certificate is asked for; good is whether the one in
	// use counts.
	client func(good bool) (certificatesclient.CertificateSigningRequestInterface, error)
	// failed says in the words of an operator why asking failed.
	failed func(good bool, err error) error

	metrics keeperMetrics
	log     *slog.Logger
}

// A keeper has one certificate, and has another before that is due:
//
//	none ──► asking ──► waiting ──► issued ──(due, or other names)──► asking
//	           ▲          │  │
//	           ├──────────┘  └─ denied or failed: a pause, another key
//	           └ the request was deleted: the same key
//
// While another is asked for, the one before serves. get and state may be called
// from any goroutine.
type keeper struct {
	keeperConfig
	has chan struct{} // closed by Run's goroutine, or newKeeper, once there is a certificate that counts

	mu      sync.Mutex // guards the fields below
	current *tls.Certificate
	since   time.Time // when current was put into the folder; zero: it is not known
	why     error     // why there is no newer one; nil: nothing is wrong
}

// newKeeper reads what there is.
func newKeeper(cfg keeperConfig) *keeper {
	k := &keeper{keeperConfig: cfg, has: make(chan struct{})}
	k.use(cfg.first, time.Time{})
	pair, err := cfg.store.Current()
	switch {
	case err == nil:
		k.takeLater(pair)
	case errors.Is(err, certstore.ErrNone):
	case k.good(): // what is in the folder is not needed
		k.log.Warn("the folder of certificates holds what cannot be used", "err", err)
	default:
		k.log.Warn("the certificate in the folder cannot be used: another is asked for", "err", err)
	}
	k.metrics.observe(k)
	return k
}

// takeLater puts a pair of the folder to use if it was issued after the one in
// use, or that has expired: a kubeconfig may hold one that was made by hand since.
func (k *keeper) takeLater(pair certstore.Pair) {
	current := k.get()
	if current != nil && current.Leaf.Equal(pair.Leaf) {
		// The same object stays: another one would mean other connections.
		k.mu.Lock()
		k.since = pair.Since
		k.mu.Unlock()
		return
	}
	if current == nil || (!pair.Leaf.NotBefore.Before(current.Leaf.NotBefore) && !expired(pair.Certificate)) || expired(current) {
		k.use(pair.Certificate, pair.Since)
	}
}

func (k *keeper) use(c *tls.Certificate, since time.Time) {
	if c == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current, k.since = c, since
	select {
	case <-k.has:
	default:
		if !expired(c) {
			close(k.has)
		}
	}
}

// get returns the certificate in use, good or expired; nil: there never was one.
func (k *keeper) get() *tls.Certificate {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// good is whether the certificate in use counts now.
func (k *keeper) good() bool {
	c := k.get()
	return c != nil && !expired(c)
}

func expired(c *tls.Certificate) bool { return !time.Now().Before(c.Leaf.NotAfter) }

// state says why there is no certificate, or no newer one.
func (k *keeper) state() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why != nil {
		return k.why
	}
	if k.current == nil {
		return fmt.Errorf("the %s has not been issued yet", k.what)
	}
	return nil
}

func (k *keeper) set(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.why = why
}

// run keeps the certificate until ctx is done.
func (k *keeper) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		k.refresh()
		if !k.wanted() {
			k.set(nil)
			retry.Sleep(ctx, k.rest())
			continue
		}
		before := k.get()
		err := k.obtain(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			failures = 0
			k.set(nil)
			k.metrics.renewed(before)
			continue
		}
		if errors.Is(err, errGone) {
			k.log.Info("a certificate request was removed before it was answered: asking again", "err", err)
		} else {
			k.metrics.failed()
		}
		failures++
		retry.Sleep(ctx, k.pause(err, failures))
	}
}

// refresh takes up a later pair that somebody put into the folder.
func (k *keeper) refresh() {
	if pair, err := k.store.Current(); err == nil && !expired(pair.Certificate) {
		before := k.get()
		if k.takeLater(pair); before != nil && before != k.get() {
			k.log.Info("certificate taken up from the folder", "file", k.store.CurrentFile(), "expires", pair.Leaf.NotAfter)
		}
	}
}

// pause tells of a failure and says how long to wait.
func (k *keeper) pause(err error, failures int) time.Duration {
	wait := retry.Pause(failures, firstRetry, lastRetry)
	if r := (*refusal)(nil); errors.As(err, &r) {
		wait = retry.Pause(failures, firstRefused, lastRefused)
	}
	k.mu.Lock()
	news := k.why == nil || k.why.Error() != err.Error()
	k.why = err
	k.mu.Unlock()
	if news {
		k.log.Warn("there is no new certificate: asking again", "err", err, "wait", wait)
	}
	return wait
}

// rest is how long nothing needs to be done: no longer than look.
func (k *keeper) rest() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.renew {
		return look
	}
	return max(time.Second, min(look, time.Until(due(k.current.Leaf, k.since))))
}

// wanted is whether a certificate is to be asked for.
func (k *keeper) wanted() bool {
	k.mu.Lock()
	current, since := k.current, k.since
	k.mu.Unlock()
	if current == nil || expired(current) {
		return true
	}
	if !k.renew {
		return false
	}
	if t := k.template(); t != nil && !covers(current.Leaf, t) {
		return true
	}
	return !time.Now().Before(due(current.Leaf, since))
}

// due is when another certificate is asked for: after 70 to 90 percent of its life,
// as upstream has it. Which of them is told by the certificate, so that it is the
// same after a restart. Signers write an earlier start than the true one, which
// counts where it is known.
func due(leaf *x509.Certificate, since time.Time) time.Time {
	start := leaf.NotBefore
	if since.After(start) && since.Before(leaf.NotAfter) {
		start = since
	}
	h := fnv.New32a()
	_, _ = h.Write(leaf.Raw) // never fails
	part := 0.7 + 0.2*float64(h.Sum32())/math.MaxUint32
	return start.Add(time.Duration(part * float64(leaf.NotAfter.Sub(start))))
}

// covers is whether a certificate says what is wanted of it. It may be for more.
func covers(leaf *x509.Certificate, want *x509.CertificateRequest) bool {
	if leaf.Subject.CommonName != want.Subject.CommonName {
		return false
	}
	for _, name := range want.DNSNames {
		if !slices.Contains(leaf.DNSNames, name) {
			return false
		}
	}
	for _, ip := range want.IPAddresses {
		if !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

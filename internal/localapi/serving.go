package localapi

import (
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// servingCertificate is the API's certificate as upstream's server wants it: a
// new one is served from the next handshake on.
type servingCertificate struct {
	leaf *pki.Leaf

	mu        sync.Mutex // guards the field below
	listeners []dynamiccertificates.Listener
}

// Name is for upstream's messages.
func (*servingCertificate) Name() string { return "serving" }

// CurrentCertKeyContent returns the certificate and its key.
func (c *servingCertificate) CurrentCertKeyContent() (cert, key []byte) {
	pair := c.leaf.Pair()
	return pair.Cert, pair.Key
}

// AddListener adds one of the places that serve it, to be told of a new one.
func (c *servingCertificate) AddListener(l dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, l)
}

// changed tells the places that serve it.
func (c *servingCertificate) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.listeners {
		l.Enqueue()
	}
}

// Package identity keeps by which credentials a node of a cluster and others know
// each other: the certificate, or what else a kubeconfig says, by which it asks the
// API, and the certificate that its own API is served with.
//
// It reads kubeconfigs and certificates; it writes below the folder of certificates,
// in upstream's layout (package certstore), and the kubeconfig of a node that had
// only one to bootstrap by. Certificates are asked for by CertificateSigningRequests,
// with one key and one object a request however often the agent dies meanwhile, and
// again before they are due. Nobody waits for that but requests to the API.
//
// All methods of an Identity may be called from any goroutine, Run once.
package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-dev/holdfast/internal/certfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/certstore"
	"github.com/holdfast-dev/holdfast/internal/kubelet/kubeconfigfile"
)

// Config says who the node is.
type Config struct {
	Node string
	// Kubeconfig says how the API is reached, and as whom. It may be missing where
	// there is Bootstrap.
	Kubeconfig string
	// Bootstrap is the kubeconfig by which a first certificate is asked for, read at
	// each try. Empty: there is none.
	Bootstrap string
	// Dir is the folder of certificates; made if it is not there.
	Dir string
	// Rotate is upstream's rotateCertificates.
	Rotate bool
	// ServerBootstrap is upstream's serverTLSBootstrap.
	ServerBootstrap bool
	// ServingCert and ServingKey are files of PEM, taken up when they change; both
	// or none. With ServerBootstrap they serve until a certificate is issued.
	ServingCert, ServingKey string
	// Addresses are the node's, for its serving certificate; asked by Run alone.
	Addresses func() []netip.Addr

	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// An Identity is a node's.
type Identity struct {
	cfg     Config
	log     *slog.Logger
	api     *rest.Config // to be copied
	client  *keeper      // nil: the kubeconfig is used as it is
	server  *keeper      // nil: serving tells
	serving func() (*tls.Certificate, error)
	stopped chan struct{} // closed at the end of Run
}

// New reads the node's credentials, and makes those that need nobody else. It
// starts nothing.
func New(cfg Config) (*Identity, error) {
	i := &Identity{cfg: cfg, log: cfg.Log.With("part", "certificates"), stopped: make(chan struct{})}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of certificates: %w", err)
	}
	if err := i.openClient(); err != nil {
		return nil, err
	}
	return i, i.openServing()
}

// Run keeps the certificates until ctx is done.
func (i *Identity) Run(ctx context.Context) error {
	defer close(i.stopped)
	var keepers sync.WaitGroup
	for _, k := range []*keeper{i.client, i.server} {
		if k != nil {
			keepers.Go(func() { k.run(ctx) })
		}
	}
	<-ctx.Done()
	keepers.Wait()
	return nil
}

// Client returns how the API is reached. The caller may change the copy.
func (i *Identity) Client() *rest.Config { return rest.CopyConfig(i.api) }

// Certificate is what the kubelet's API is served with.
func (i *Identity) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.serving() }

// openClient decides by which credentials the API is asked:
//
//	kubeconfig  its credentials            bootstrap  what counts
//	there       a good certificate, or     any        they
//	            none (a token, a program)
//	there       an expired certificate     there      a new one, asked for by bootstrap
//	there       an expired certificate     none       an error
//	missing, or its file of a certificate  there      a new one, asked for by bootstrap
//	is                                     none       an error
func (i *Identity) openClient() error {
	store := certstore.New(i.cfg.Dir, "kubelet-client")
	config, note, err := kubeconfigfile.Load(i.cfg.Kubeconfig)
	if note != "" {
		i.log.Warn("the kubeconfig can be read by others", "said", note)
	}
	unfinished := errors.Is(err, kubeconfigfile.ErrNone) || errors.Is(err, kubeconfigfile.ErrNoCertificate)
	if unfinished && i.cfg.Bootstrap != "" {
		return i.firstBootstrap(store)
	}
	if unfinished {
		return fmt.Errorf("%w: write one (kubeadm join does), or name one with a token in --bootstrap-kubeconfig, by which the node asks for a certificate", err)
	}
	if err != nil {
		return err
	}
	first, has, err := pairOf(config, store)
	switch {
	case err != nil && i.cfg.Bootstrap == "":
		return fmt.Errorf("kubeconfig %s: %w", i.cfg.Kubeconfig, err)
	case err != nil:
		i.log.Warn("the certificate of the kubeconfig cannot be used: another is asked for", "err", err)
	}
	if has && (i.cfg.Rotate || i.cfg.Bootstrap != "") {
		return i.keepClient(store, config, first)
	}
	// Everything else client-go keeps by itself: a token or a file of one, a
	// program, files of a certificate.
	i.api = config
	if has {
		return i.usable(first)
	}
	return nil
}

// firstBootstrap prepares to ask for the first certificate.
func (i *Identity) firstBootstrap(store *certstore.Store) error {
	config, note, err := kubeconfigfile.Load(i.cfg.Bootstrap)
	if err != nil {
		return fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	if note != "" {
		i.log.Warn("the kubeconfig can be read by others", "said", note)
	}
	// Whoever took the kubeconfig away wants another identity, maybe of another
	// cluster.
	if err := store.Clear(); err != nil {
		return err
	}
	config = rest.AnonymousClientConfig(config)
	// As upstream, before there is a certificate: whoever dies now comes here again,
	// with the key of the same request.
	if err := kubeconfigfile.Write(i.cfg.Kubeconfig, config, store.CurrentFile()); err != nil {
		return fmt.Errorf("write --kubeconfig: %w", err)
	}
	return i.keepClient(store, config, nil)
}

// pairOf returns the client certificate that a kubeconfig holds or names. has is
// whether it is by one that the kubeconfig knows the node; nil: it is not there yet.
func pairOf(config *rest.Config, store *certstore.Store) (pair *tls.Certificate, has bool, err error) {
	switch {
	case len(config.CertData) > 0 && len(config.KeyData) > 0:
		c, err := tls.X509KeyPair(config.CertData, config.KeyData)
		if err != nil {
			return nil, true, fmt.Errorf("its client certificate: %w", err)
		}
		return &c, true, nil
	case config.CertFile == "" || config.KeyFile == "":
		return nil, false, nil
	case config.CertFile == store.CurrentFile():
		current, err := store.Current()
		if errors.Is(err, certstore.ErrNone) {
			err = nil
		}
		return current.Certificate, true, err
	}
	c, err := readPair(config.CertFile, config.KeyFile)
	if err != nil {
		return nil, true, fmt.Errorf("its client certificate: %w", err)
	}
	return c, true, nil
}

// keepClient has a keeper for the client certificate.
func (i *Identity) keepClient(store *certstore.Store, config *rest.Config, first *tls.Certificate) error {
	i.api = rest.AnonymousClientConfig(config)
	k := newKeeper(keeperConfig{
		what: "client certificate", store: store, first: first, renew: i.cfg.Rotate,
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth,
		template: func() *x509.CertificateRequest { return &x509.CertificateRequest{Subject: subject(i.cfg.Node)} },
		client:   i.requests, failed: i.explain,
		metrics: clientMetrics(i.cfg.Metrics), log: i.log.With("source", "client"),
	})
	if i.cfg.Bootstrap == "" {
		if err := i.usable(k.get()); err != nil {
			return err
		}
	}
	i.client = k
	t, err := newTransport(k, i.stopped, i.api)
	if err != nil {
		return err
	}
	i.api.Transport = t
	i.api.TLSClientConfig = rest.TLSClientConfig{} // the transport has it
	i.api.Dial, i.api.Proxy = nil, nil
	return nil
}

// usable says why a client certificate is of no use; nil: it is not there.
func (i *Identity) usable(c *tls.Certificate) error {
	switch {
	case c == nil:
		return fmt.Errorf("the client certificate of kubeconfig %s is not there: name a kubeconfig with a token in --bootstrap-kubeconfig (kubeadm token create), by which the node asks for one", i.cfg.Kubeconfig)
	case expired(c):
		return i.errExpired(c)
	}
	return nil
}

func (i *Identity) errExpired(c *tls.Certificate) error {
	return fmt.Errorf("the client certificate of kubeconfig %s expired on %s: name a kubeconfig with a token in --bootstrap-kubeconfig (kubeadm token create), by which the node asks for another",
		i.cfg.Kubeconfig, c.Leaf.NotAfter.UTC().Format("2006-01-02 15:04:05 MST"))
}

// requests returns how the client certificate is asked for: by the one in use, or
// by the bootstrap kubeconfig as it is now.
func (i *Identity) requests(good bool) (certificatesclient.CertificateSigningRequestInterface, error) {
	config := i.Client()
	if !good {
		if i.cfg.Bootstrap == "" {
			return nil, i.errExpired(i.client.get())
		}
		var err error
		if config, _, err = kubeconfigfile.Load(i.cfg.Bootstrap); err != nil {
			return nil, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
		}
	}
	return newRequests(config)
}

func newRequests(config *rest.Config) (certificatesclient.CertificateSigningRequestInterface, error) {
	client, err := certificatesclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster's API: %w", err)
	}
	return client.CertificateSigningRequests(), nil
}

// openServing decides what the kubelet's API is served with: files of others, a
// certificate that the cluster issues, or one that the node signs itself.
func (i *Identity) openServing() error {
	c := i.cfg
	switch {
	case c.ServerBootstrap:
		return i.keepServing()
	case c.ServingCert != "":
		pair := certfile.NewPair(c.ServingCert, c.ServingKey, Told(c.Log, c.ServingCert))
		if pair.Certificate() == nil {
			return fmt.Errorf("tlsCertFile and tlsPrivateKeyFile: %w", pair.Err())
		}
		i.serving = func() (*tls.Certificate, error) { return pair.Certificate(), nil }
		return nil
	}
	pair, err := selfSigned(c.Dir, c.Node)
	i.serving = func() (*tls.Certificate, error) { return pair, nil }
	return err
}

func (i *Identity) keepServing() error {
	var first *tls.Certificate
	if i.cfg.ServingCert != "" {
		var err error
		if first, err = readPair(i.cfg.ServingCert, i.cfg.ServingKey); err != nil {
			return fmt.Errorf("tlsCertFile and tlsPrivateKeyFile: %w", err)
		}
	}
	k := newKeeper(keeperConfig{
		what: "serving certificate", store: certstore.New(i.cfg.Dir, "kubelet-server"), first: first, renew: true,
		signer: certificatesv1.KubeletServingSignerName, usage: certificatesv1.UsageServerAuth,
		template: func() *x509.CertificateRequest { return servingTemplate(i.cfg.Node, i.cfg.Addresses()) },
		client: func(bool) (certificatesclient.CertificateSigningRequestInterface, error) {
			return newRequests(i.Client())
		},
		failed:  func(_ bool, err error) error { return err },
		metrics: serverMetrics(i.cfg.Metrics), log: i.log.With("source", "server"),
	})
	i.server = k
	i.serving = func() (*tls.Certificate, error) {
		if c := k.get(); c != nil {
			return c, nil
		}
		return nil, k.state()
	}
	return nil
}

// Told returns what logs the fate of a file of certificates, for package certfile.
func Told(log *slog.Logger, file string) func(error) {
	log = log.With("part", "certificates", "file", file)
	return func(err error) {
		if err != nil {
			log.Warn("certificates cannot be taken up: the ones before count", "err", err)
			return
		}
		log.Info("certificates taken up")
	}
}

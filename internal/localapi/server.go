package localapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/connrotation"

	"github.com/holdfast-dev/holdfast/internal/localapi/certrenewal"
	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// Config says where one embedded API keeps its things and under which names
// it is reached.
type Config struct {
	// DataDir is the folder of the store. Required.
	DataDir string
	// PKIDir is the folder of the certificates and keys. Required.
	PKIDir string
	// RunDir is the folder of the store's socket. Its path must be short: a
	// socket's path has at most 107 bytes. Required.
	RunDir string
	// Listen are the addresses to serve on; port 0 is any free port. The
	// first must be on loopback, or every address of one family (0.0.0.0) or
	// of both (::): the server calls itself there. Default: 127.0.0.1:6443.
	Listen []string
	// Names are host names and IP addresses to have in the certificate
	// beside those of Listen, localhost, NodeName and kubernetes.default.svc.
	Names []string
	// MoreNames is asked every minute for names that come and go. May be nil.
	MoreNames func() []string
	// CertificateLife is how long a certificate is valid. It is renewed while
	// a third of that is left. Default: a year.
	CertificateLife time.Duration
	// RenewEvery is the time between two looks at the certificates. Default: a
	// minute.
	RenewEvery time.Duration
	// Now is the clock that certificates are dated by. Default: time.Now.
	Now func() time.Time
	// AdminRenewed is called when AdminKubeconfig has a new certificate; again
	// after an error. May be nil.
	AdminRenewed func() error
	// NodeName is the only node: pods that name no node are bound to it, and
	// its kubelet alone may create mirror pods that refer to other objects.
	// Required.
	NodeName string
	// DialKubelet connects to the address of a node's kubelet. Default: over the
	// network.
	DialKubelet func(ctx context.Context, network, address string) (net.Conn, error)
	// ServiceCIDR is where services get their cluster IPs from. Default:
	// 10.96.0.0/16. It cannot be changed once the store was made.
	ServiceCIDR string
	// Groups are API groups to serve beside upstream's, such as
	// metrics.k8s.io. Their types must have upstream's generated OpenAPI.
	Groups []*genericapiserver.APIGroupInfo
	// Metrics gets the store's sizes. Default: nobody does.
	Metrics prometheus.Registerer
	// Log gets what an operator should see; libraries go to debug level.
	// Required.
	Log *slog.Logger
}

// DefaultServiceCIDR is where services get their addresses, as in upstream's
// clusters.
const DefaultServiceCIDR = "10.96.0.0/16"

// features are upstream's that are not on by default: without them its
// registries drop fields, silently, that this node's kubelet does.
const features = "ContainerStopSignals=true"

const (
	defaultListen = "127.0.0.1:6443"
	// shutdownTimeout is how long a stopping server waits for its clients.
	shutdownTimeout = 2 * time.Second
	// dialTimeout is client-go's, for the connections and their keep-alives.
	dialTimeout = 30 * time.Second
)

func (c Config) withDefaults() Config {
	if len(c.Listen) == 0 {
		c.Listen = []string{defaultListen}
	}
	if c.ServiceCIDR == "" {
		c.ServiceCIDR = DefaultServiceCIDR
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	for name, value := range map[string]string{"DataDir": c.DataDir, "PKIDir": c.PKIDir, "RunDir": c.RunDir, "NodeName": c.NodeName} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", name))
		}
	}
	if host, _, err := net.SplitHostPort(c.Listen[0]); err != nil {
		errs = append(errs, fmt.Errorf("listen address %q: %w", c.Listen[0], err))
	} else if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() && !ip.IsUnspecified() {
		errs = append(errs, fmt.Errorf("listen address %q: the first must be a loopback IP address, or 0.0.0.0 or :: for all addresses", c.Listen[0]))
	}
	if _, _, err := net.ParseCIDR(c.ServiceCIDR); err != nil {
		errs = append(errs, fmt.Errorf("service CIDR: %w", err))
	}
	return errors.Join(errs...)
}

// A Server is one embedded API.
type Server struct {
	cfg       Config
	log       *slog.Logger
	pki       *pki.Authority
	certs     certificates
	serving   *servingCertificate
	listeners []net.Listener
	ready     chan struct{} // closed by Run

	// connections are those of the clients whose configurations are handed out.
	connections *connrotation.Dialer

	mu struct {
		sync.Mutex
		secure *genericapiserver.SecureServingInfo // nil until Run has built it
		api    *genericapiserver.GenericAPIServer
		store  *etcd // nil while it does not serve
	}
}

// New prepares the certificates and opens the listeners. It starts nothing.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("embedded API: %w", err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.Set(features); err != nil {
		return nil, fmt.Errorf("embedded API: %w", err)
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, ready: make(chan struct{}),
		connections: connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext),
	}
	if err := s.listen(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.prepareCertificates(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.serving = &servingCertificate{leaf: s.certs.serving}
	if cfg.Metrics != nil {
		s.registerMetrics(cfg.Metrics)
	}
	return s, nil
}

// Ready is closed once the API answers, its default objects are there and
// its controllers have started.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx is done, and returns once everything that it started
// has ended and the store is closed. A Server runs once.
func (s *Server) Run(ctx context.Context) error {
	lock, err := openStore(s.cfg.DataDir)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	store, err := startEtcd(ctx, storeConfig{dir: s.cfg.DataDir, runDir: s.cfg.RunDir, log: s.log})
	if err != nil {
		return errors.Join(err, lock.Close(), s.Close())
	}
	if err := writeFormat(s.cfg.DataDir); err != nil {
		store.stop()
		return errors.Join(err, lock.Close(), s.Close())
	}
	s.setStore(store)
	err = s.runOn(ctx, store)
	s.setStore(nil)
	store.stop()
	return errors.Join(err, lock.Close())
}

// runOn serves from a store that runs.
func (s *Server) runOn(ctx context.Context, store *etcd) error {
	// The server outlives ctx, so that the controllers can finish through it.
	serverCtx, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServer()
	a, err := s.newAPI(serverCtx, store)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.publish(a)

	var servers, workers sync.WaitGroup
	defer servers.Wait()
	defer stopServer()
	errs := make(chan error, len(s.listeners)+2) // one for each sender
	servers.Go(func() {
		err := a.prepared.RunWithContext(serverCtx)
		errs <- errors.Join(err, a.storages.close())
	})
	for _, l := range s.listeners[1:] {
		servers.Go(func() { errs <- s.Serve(serverCtx, l) })
	}

	workerCtx, stopWorkers := context.WithCancel(ctx)
	defer workers.Wait()
	defer stopWorkers()
	renewer := certrenewal.New(certrenewal.Config{
		Authority: s.pki, Renewed: s.useRenewed, Every: s.cfg.RenewEvery, Log: s.log,
	})
	workers.Go(func() {
		if err := renewer.Run(workerCtx); err != nil {
			errs <- err
		}
	})
	workers.Go(func() {
		if !a.waitReady(workerCtx) {
			return
		}
		if err := s.runControllers(workerCtx, a, func() { s.setReady(store) }); err != nil {
			errs <- err
		}
	})
	workers.Go(func() { store.keepHouse(workerCtx) })
	storeEnded := make(chan error, 1)
	workers.Go(func() { storeEnded <- store.ended(workerCtx) })
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return fmt.Errorf("serve the embedded API: %w", err)
	case err := <-storeEnded:
		return err
	}
}

func (s *Server) setReady(store *etcd) {
	store.guard.ready.Store(true)
	// Starting leaves more garbage than what stays; an idle node would keep
	// it for minutes.
	debug.FreeOSMemory()
	s.log.Info("the API is ready", "address", s.Address())
	close(s.ready)
}

// publish lets Serve use the API.
func (s *Server) publish(a *api) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.api, s.mu.secure = a.prepared.GenericAPIServer, a.secure
}

// Serve serves the API on one more listener until ctx is done. It waits until
// the API is built. The certificate has the names that Config gave it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.mu.Lock()
	api, secure := s.mu.api, s.mu.secure
	s.mu.Unlock()
	if api == nil {
		select {
		case <-s.ready:
			return s.Serve(ctx, l)
		case <-ctx.Done():
			return l.Close()
		}
	}
	info := *secure
	info.Listener = l
	done, _, err := info.Serve(api.Handler, shutdownTimeout, ctx.Done())
	if err != nil {
		return errors.Join(fmt.Errorf("serve the API on %s: %w", l.Addr(), err), l.Close())
	}
	<-done
	return nil
}

// Package controlplane runs a real Kubernetes control plane for tests: etcd,
// kube-apiserver with its aggregation layer, kube-controller-manager and
// kube-scheduler, each upstream's own program in a process of its own, with
// certificates, service account keys, RBAC and a bootstrap token.
//
// The programs are one file, which the nested module server builds, so that
// building and checking the main module does not compile a control plane.
//
// A test begins with Start. A program uses New and Run. Everything is kept in
// one folder: the store, the certificates, the kubeconfigs, a log for each program.
// The programs die with the process that started them, however it ends.
//
// A Cluster's methods may be called from several goroutines, but no component
// may be stopped or started by two at once.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// A Component is one program of the control plane.
type Component string

// The components, in the order in which they start.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
)

var components = []Component{Etcd, APIServer, ControllerManager, Scheduler}

// maxSocketPath is what Linux accepts in a sockaddr_un, less the final 0.
const maxSocketPath = 107

// Config says what control plane is wanted.
type Config struct {
	// Dir is the folder of everything; required, made where it is missing.
	// A control plane that ran there before goes on with its data. Its path
	// is at most 90 bytes long, for the store's socket is in it.
	Dir string
	// Program is the file that holds the components; required. "make
	// bin/tools/controlplane" builds it.
	Program string
	// Address is an IPv4 address of this machine that network namespaces or
	// other machines reach. With it, kube-apiserver listens on every address of
	// the machine, as it has just one setting for that, and its certificate
	// is for this one too; the service "kubernetes" leads there. Default:
	// loopback alone.
	Address string
	// ServiceCIDR is the range of service addresses. Default: 10.96.0.0/16.
	ServiceCIDR string
	// Arguments are put behind a component's own and so win over them.
	Arguments map[Component][]string
	// Log is told what starts and stops. Default: nobody.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.ServiceCIDR == "" {
		c.ServiceCIDR = "10.96.0.0/16"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("no folder (Dir)"))
	}
	if len(socketPath(c.Dir)) > maxSocketPath {
		errs = append(errs, fmt.Errorf("the path of the store's socket, %s, is longer than %d bytes: choose a shorter folder", socketPath(c.Dir), maxSocketPath))
	}
	if _, err := exec.LookPath(c.Program); err != nil {
		errs = append(errs, fmt.Errorf("the control plane's program: %w (make bin/tools/controlplane)", err))
	}
	if ip := net.ParseIP(c.Address); c.Address != "" && (ip.To4() == nil || ip.IsLoopback() || ip.IsUnspecified()) {
		errs = append(errs, fmt.Errorf("address %q: want an IPv4 address of this machine that is not loopback", c.Address))
	}
	if ip, _, err := net.ParseCIDR(c.ServiceCIDR); err != nil || ip.To4() == nil {
		errs = append(errs, fmt.Errorf("service CIDR %q: want an IPv4 range such as 10.96.0.0/16", c.ServiceCIDR))
	}
	return errors.Join(errs...)
}

// A Cluster is one control plane.
type Cluster struct {
	cfg    Config
	ports  map[Component]int
	ca     *pki.Authority
	creds  credentials
	token  string // bootstrap token
	starts chan func()
	ended  chan error // a component that ended by itself; buffered for each
	ready  chan struct{}

	// mu guards what is below.
	mu        sync.Mutex
	processes map[Component]*process
}

// New prepares cfg.Dir: certificates, keys, kubeconfigs. It starts nothing.
func New(cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	c := &Cluster{
		cfg:       cfg,
		starts:    make(chan func()),
		ended:     make(chan error, len(components)),
		ready:     make(chan struct{}),
		processes: map[Component]*process{},
	}
	var err error
	if c.ports, err = freePorts(APIServer, ControllerManager, Scheduler); err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.Dir, c.path("logs"), c.path("flexvolumes")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the control plane's folder: %w", err)
		}
	}
	if c.token, err = bootstrapToken(c.path("bootstrap-token")); err != nil {
		return nil, err
	}
	return c, c.prepareCredentials()
}

// Run runs the control plane until ctx is done, then ends it and keeps its
// data. A component that ends by itself is an error. Run is called once.
func (c *Cluster) Run(ctx context.Context) error {
	launching, stopLauncher := context.WithCancel(context.WithoutCancel(ctx))
	var launcher sync.WaitGroup
	launcher.Go(func() { launch(launching, c.starts) })
	defer launcher.Wait()
	defer stopLauncher()
	defer c.stopAll()

	if err := c.startAll(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	close(c.ready)
	c.cfg.Log.Info("The control plane is ready", "address", c.URL())
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.ended:
		return err
	}
}

// Ready is closed once every component is healthy and the objects that
// clients rely on exist.
func (c *Cluster) Ready() <-chan struct{} { return c.ready }

// URL is the API server's, by the address that Config names or by loopback.
func (c *Cluster) URL() string { return "https://" + c.HostPort() }

// HostPort is the host and port of URL.
func (c *Cluster) HostPort() string {
	host := "127.0.0.1"
	if c.cfg.Address != "" {
		host = c.cfg.Address
	}
	return net.JoinHostPort(host, strconv.Itoa(c.ports[APIServer]))
}

// CA is the certificate (PEM) of the authority that signs every certificate
// of the cluster.
func (c *Cluster) CA() []byte { return c.ca.CertPEM() }

// CAFile is the file of CA: what a kubelet verifies its clients with.
func (c *Cluster) CAFile() string { return c.ca.CertFile() }

// Kubeconfig is the file of an administrator, who may do everything.
func (c *Cluster) Kubeconfig() string { return c.path("admin.kubeconfig") }

// BootstrapKubeconfig is the file by which a new kubelet asks for its
// certificate: it holds the bootstrap token.
func (c *Cluster) BootstrapKubeconfig() string { return c.path("bootstrap.kubeconfig") }

// BootstrapToken is the token (ID.SECRET) of group system:bootstrappers.
func (c *Cluster) BootstrapToken() string { return c.token }

// LogFile is where a component's output goes.
func (c *Cluster) LogFile(name Component) string { return c.path("logs", string(name)+".log") }

// Config returns the client configuration of a kubeconfig file of this cluster.
func (c *Cluster) Config(kubeconfig string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	cfg.QPS, cfg.Burst = -1, -1 // a test waits for the cluster, not for its own client
	return cfg, nil
}

func (c *Cluster) path(names ...string) string {
	return filepath.Join(slices.Insert(names, 0, c.cfg.Dir)...)
}

func socketPath(dir string) string { return filepath.Join(dir, "etcd.sock") }

// firstPort and lastPort are where ports are taken from: below the range of
// outgoing connections and of node ports, so that nobody has a component's
// port when it starts again.
const firstPort, lastPort = 20000, 29999

// freePorts finds a port for each component that listens. They are not held
// until the component does: whoever takes one meanwhile makes its start fail.
func freePorts(names ...Component) (map[Component]int, error) {
	ports := map[Component]int{}
	offset := os.Getpid() // neighbours begin to look in different places
	for i := 0; i <= lastPort-firstPort && len(ports) < len(names); i++ {
		port := firstPort + (offset*97+i)%(lastPort-firstPort+1)
		l, err := net.Listen("tcp4", net.JoinHostPort("", strconv.Itoa(port))) //nolint:noctx // ends at once
		if err != nil {
			continue
		}
		ports[names[len(ports)]] = port
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("look for a free port: %w", err)
		}
	}
	if len(ports) < len(names) {
		return nil, fmt.Errorf("no free port from %d to %d", firstPort, lastPort)
	}
	return ports, nil
}

// Tail returns the end of a component's log, for people.
func (c *Cluster) Tail(name Component) string {
	const size = 4 << 10
	f, err := os.Open(c.LogFile(name))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		if _, err := f.Seek(-size, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

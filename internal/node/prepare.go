package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/localapi"
	"github.com/holdfast-dev/holdfast/internal/localapi/faultevents"
	"github.com/holdfast-dev/holdfast/internal/localapi/objects"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
	"github.com/holdfast-dev/holdfast/internal/podnet"
	"github.com/holdfast-dev/holdfast/internal/processmetrics"
	"github.com/holdfast-dev/holdfast/internal/restmetrics"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// prepare makes every part. None of them runs yet, but the ports are taken.
func (n *node) prepare(ctx context.Context) error {
	last, err := loadSaved(n.in)
	if err != nil {
		return err
	}
	endpoint, err := n.prepareRuntime()
	if err != nil {
		return err
	}
	n.metrics = prometheus.NewRegistry()
	processmetrics.Register(n.metrics)
	if err := n.prepareAPI(ctx, last); err != nil {
		return err
	}
	if err := n.prepareKubelet(ctx, last, endpoint); err != nil {
		return err
	}
	if err := n.prepareManifests(); err != nil {
		return err
	}
	n.prepareArchives()
	if err := n.prepareManager(); err != nil {
		return err
	}
	running := n.cfg
	running.APIPort, running.KubeletPort = new(n.api.Port()), new(n.kubeletPort())
	return save(n.in, running)
}

// prepareRuntime describes the private containerd, unless the user named a
// runtime, and finds the node's own address.
func (n *node) prepareRuntime() (endpoint string, err error) {
	if n.cfg.ContainerRuntimeEndpoint != "" {
		n.board.SetPart(partRuntime, control.External, n.cfg.ContainerRuntimeEndpoint)
		n.address, err = uplink()
		return n.cfg.ContainerRuntimeEndpoint, err
	}
	cfg := hostConfig(n.in, n.log.With("part", partRuntime), n.cfg.Progress)
	if cfg.RuntimeDir, err = runtimehost.FindRuntimeDir(); err != nil {
		return "", err
	}
	cfg.NodePorts = n.nodePorts // chosen by the time that anything runs
	cfg.Down = n.runtimeDown
	cfg.Mirrors, cfg.Proxy = n.cfg.Images.Mirrors, n.cfg.Images.Proxy
	cfg.Handlers = n.cfg.RuntimeHandlers
	n.address = n.in.Gateway()
	n.host = runtimehost.New(cfg)
	return n.host.Endpoint(), nil
}

// uplink returns the address by which this machine reaches others, or loopback
// where it has no network.
func uplink() (netip.Addr, error) {
	// No packet is sent: the kernel only looks up the route.
	conn, err := net.Dial("udp4", "192.0.2.1:9") //nolint:noctx // does not wait
	if err != nil {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil //nolint:nilerr // no network is a fact, no failure
	}
	addr := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return addr, conn.Close()
}

func (n *node) prepareAPI(ctx context.Context, last Config) (err error) {
	if n.api, err = n.newAPI(pickPort(*n.cfg.APIPort, last.APIPort)); err != nil {
		return err
	}
	err = n.writeKubeconfig()
	if err == nil {
		err = n.listenForPods(ctx)
	}
	if err != nil {
		return errors.Join(err, n.api.Close())
	}
	n.tellReach()
	return nil
}

// writeKubeconfig writes the administrator's credentials as they are now.
func (n *node) writeKubeconfig() error {
	kubeconfig, err := n.api.AdminKubeconfig()
	if err != nil {
		return err
	}
	return atomicfile.Write(n.in.Kubeconfig(), kubeconfig, 0o600)
}

// newAPI makes the API server on the first port that is free.
func (n *node) newAPI(ports []int) (api *localapi.Server, err error) {
	host := "127.0.0.1"
	if _, every := n.cfg.bound(); every.IsValid() {
		host = every.String()
	}
	for _, port := range ports {
		api, err = localapi.New(localapi.Config{
			DataDir: n.in.Path("etcd"), PKIDir: n.in.Path("pki"), RunDir: n.in.Run(),
			Listen: []string{net.JoinHostPort(host, strconv.Itoa(port))}, Names: n.apiNames(), MoreNames: n.changingNames,
			NodeName: n.cfg.NodeName, DialKubelet: n.dialKubelet, AdminRenewed: n.writeKubeconfig, Metrics: n.metrics, Log: n.log.With("part", partAPI),
		})
		if !errors.Is(err, syscall.EADDRINUSE) {
			return api, err
		}
	}
	return nil, fmt.Errorf("%w (choose another with --api-port, 0 for any)", err)
}

// pickPort returns the ports to try: the wanted one, or for "any free one" the
// last one first, so that clients find the node again after a restart.
func pickPort(wanted int, last *int) []int {
	if wanted == 0 && last != nil && *last != 0 {
		return []int{*last, 0}
	}
	return []int{wanted}
}

// listen listens on an address that the machine may not have yet: the bridge
// comes with the container runtime.
func listen(ctx context.Context, address netip.Addr, port int) (net.Listener, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		errControl := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		})
		return errors.Join(err, errControl)
	}}
	return cfg.Listen(ctx, "tcp", netip.AddrPortFrom(address, uint16(port)).String())
}

// leaseDuration is longer than upstream's 40 s. Nobody judges this node by its
// lease, as where the node is dead the API is too; and every renewal, at a
// quarter of it, is a write to the disk for as long as the node lives.
const leaseDuration = 4 * time.Minute

func (n *node) prepareKubelet(ctx context.Context, last Config, endpoint string) error {
	config := n.api.KubeletConfig()
	config.QPS = -1 // the server is this process and bounds what it takes on
	config.Wrap(restmetrics.New(n.metrics).Wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	listeners, err := n.kubeletListeners(ctx, pickPort(*n.cfg.KubeletPort, last.KubeletPort))
	if err != nil {
		return err
	}
	n.kubeletListener = listeners[0]
	health, err := n.healthListener(ctx)
	if err != nil {
		return err
	}
	serving, err := n.api.KubeletServing(n.address.String())
	if err != nil {
		return err
	}
	n.kubeletTLS = newKubeletTLS(n.cfg.Kubelet.TLSSettings, serving, n.api.CACert(), n.log)
	if n.kubeletTLS.files != nil {
		l, err := n.listenForAPI(ctx)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
	}
	providers, err := n.cfg.credentialProviders()
	if err != nil {
		return err
	}
	agent := kubelet.Config{
		ImageCredentials: n.cfg.Images.Secrets, CredentialProviders: providers,
		NodeName: n.cfg.NodeName, Addresses: []netip.Addr{n.address}, Dir: n.in.Path("kubelet"), PLEGThreshold: n.cfg.plegThreshold(),
		Client: client, ServiceHost: n.address.String(), ServicePort: strconv.Itoa(n.api.Port()), AllowAPIReferences: true,
		Listeners: listeners, HealthListener: health, ClientCAs: n.kubeletTLS.clientCAs, Certificate: n.kubeletTLS.certificate,
		HostPorts: n.hostPorts(), PressureTaints: true, ShutdownName: n.in.ID, Metrics: n.metrics, Log: n.log,
	}
	configuration, err := inForce(n.cfg, n.in, endpoint, n.kubeletPort())
	if err == nil {
		err = agent.Configure(configuration)
	}
	if err != nil {
		return err
	}
	if len(agent.Shutdown) == 0 { // an earlier configuration may have wanted it
		if err := kubelet.WithdrawShutdown(n.in.ID); err != nil {
			return fmt.Errorf("take back what logind was told: %w", err)
		}
	}
	n.kubelet, err = kubelet.New(agent)
	return err
}

// kubeletListeners listens on loopback and the node's address, on the first
// port that is free.
func (n *node) kubeletListeners(ctx context.Context, ports []int) (ls []net.Listener, err error) {
	for _, port := range ports {
		var loopback net.Listener
		loopback, err = listen(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ls = append(ls, loopback)
		if n.address.IsLoopback() {
			return ls, nil
		}
		bridge, err := listen(ctx, n.address, loopback.Addr().(*net.TCPAddr).Port)
		if err != nil {
			return nil, errors.Join(err, loopback.Close())
		}
		return append(ls, bridge), nil
	}
	return nil, fmt.Errorf("serve the kubelet's API: %w (choose another with --kubelet-port, 0 for any)", err)
}

// nodePorts are the ports on which the node itself listens.
func (n *node) nodePorts() []int { return []int{n.api.Port(), n.kubeletPort()} }

// hostPorts knows whose the host's ports are, as far as the pods' network is ours.
func (n *node) hostPorts() *podnet.HostPorts {
	if n.host == nil {
		return nil
	}
	return &podnet.HostPorts{Net: podnet.Net{ID: n.in.ID, NodePorts: n.nodePorts()}}
}

func (n *node) kubeletPort() int { return n.kubeletListener.Addr().(*net.TCPAddr).Port }

// prepareManifests makes what reads the manifest folder, what applies its
// objects, and what makes events of its faults.
func (n *node) prepareManifests() error {
	admin, err := dynamic.NewForConfig(n.api.AdminConfig())
	if err != nil {
		return err
	}
	events, err := kubernetes.NewForConfig(n.api.AdminConfig())
	if err != nil {
		return err
	}
	n.admin = events.CoreV1().RESTClient()
	n.faultEvents = faultevents.New(faultevents.Config{
		Node: n.cfg.NodeName, Events: events.CoreV1().Events(metav1.NamespaceDefault), Log: n.log.With("part", "faultevents"),
	})
	n.objects = objects.New(objects.Config{
		Client: admin, Log: n.log.With("part", "objects"),
		Report: func(faults []manifest.Fault) { n.setFaults("objects", faults) },
	})
	parser := manifest.New()
	n.manifests = manifestdir.New(manifestdir.Config{
		Dir: n.cfg.ManifestDir, Recursive: true, StateFile: manifestState(n.in), Period: n.cfg.Kubelet.FileCheckFrequency.Duration,
		Parser: parser, Check: n.kubelet.CheckManifest, Log: n.log.With("part", partManifests), Metrics: n.metrics, Publish: n.publish,
	})
	return n.prepareManifestURL(parser)
}

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/internal/retry"
)

const (
	// healthPause is between two looks at a component's health.
	healthPause = 100 * time.Millisecond
	// healthTimeout is for one look.
	healthTimeout = 5 * time.Second
)

// arguments are the flags of a component, as upstream documents them.
func (c *Cluster) arguments(name Component) []string {
	switch name {
	case Etcd:
		return c.etcdArguments()
	case APIServer:
		return c.apiServerArguments()
	case ControllerManager:
		return append(c.clientArguments(name),
			// Both are off by default and part of joining a node.
			"--controllers=*,bootstrapsigner,tokencleaner",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file="+c.path("pki", "sa.key"),
			"--root-ca-file="+c.ca.CertFile(),
			"--cluster-signing-cert-file="+c.ca.CertFile(),
			"--cluster-signing-key-file="+c.path("pki", "ca.key"),
			"--service-cluster-ip-range="+c.cfg.ServiceCIDR,
			// The default is a folder of the machine, which would be made.
			"--flex-volume-plugin-dir="+c.path("flexvolumes"),
		)
	case Scheduler:
		return c.clientArguments(name)
	default:
		panic("controlplane: no component " + string(name))
	}
}

func (c *Cluster) etcdArguments() []string {
	return []string{
		"--name=controlplane",
		"--data-dir=" + c.path("etcd"),
		// A socket in a folder of mode 0700 needs no certificates.
		"--listen-client-urls=unix://" + socketPath(c.cfg.Dir),
		"--advertise-client-urls=unix://" + socketPath(c.cfg.Dir),
		"--listen-peer-urls=unix://" + c.path("peer.sock"),
		"--initial-advertise-peer-urls=unix://" + c.path("peer.sock"),
		"--initial-cluster=controlplane=unix://" + c.path("peer.sock"),
		// What a dying process has written is safe in the kernel; only a power
		// cut would lose it, and no test cuts the power of its own machine.
		"--unsafe-no-fsync=true",
		"--log-level=warn",
	}
}

func (c *Cluster) apiServerArguments() []string {
	args := []string{
		"--etcd-servers=unix://" + socketPath(c.cfg.Dir),
		"--secure-port=" + strconv.Itoa(c.ports[APIServer]),
		"--service-cluster-ip-range=" + c.cfg.ServiceCIDR,
		"--tls-cert-file=" + c.creds.serving.CertFile,
		"--tls-private-key-file=" + c.creds.serving.KeyFile,
		"--client-ca-file=" + c.ca.CertFile(),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + c.path("pki", "sa.key"),
		"--service-account-key-file=" + c.path("pki", "sa.key"),
		"--kubelet-client-certificate=" + c.creds.toKubelet.CertFile,
		"--kubelet-client-key=" + c.creds.toKubelet.KeyFile,
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		// There is no kube-proxy, so the aggregator goes to endpoints.
		"--enable-aggregator-routing=true",
		"--requestheader-client-ca-file=" + c.creds.proxyCA,
		"--requestheader-allowed-names=" + proxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.creds.proxy.CertFile,
		"--proxy-client-key-file=" + c.creds.proxy.KeyFile,
	}
	if c.cfg.Address != "" {
		return append(args, "--bind-address=0.0.0.0", "--advertise-address="+c.cfg.Address)
	}
	// Endpoints may not be loopback, so there is nothing to put into the
	// service "kubernetes".
	return append(args, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none")
}

// clientArguments are those of a component that is a client of the API server.
func (c *Cluster) clientArguments(name Component) []string {
	kubeconfig := c.path(string(name) + ".kubeconfig")
	serving := c.creds.clients[name]
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.ports[name]),
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--leader-elect=false", // there is one
	}
}

// startAll starts the components, each once those that it needs are healthy.
func (c *Cluster) startAll(ctx context.Context) error {
	if err := c.StartComponent(ctx, Etcd); err != nil {
		return err
	}
	if err := c.StartComponent(ctx, APIServer); err != nil {
		return err
	}
	for _, name := range []Component{ControllerManager, Scheduler} {
		if err := c.startProcess(ctx, name); err != nil {
			return err
		}
	}
	if err := c.bootstrap(ctx); err != nil {
		return err
	}
	return errors.Join(c.waitHealthy(ctx, ControllerManager), c.waitHealthy(ctx, Scheduler))
}

// stopAll ends what runs, last started first.
func (c *Cluster) stopAll() {
	for _, name := range slices.Backward(components) {
		if c.process(name) != nil {
			_ = c.stopProcess(name, syscall.SIGTERM) // it does run
		}
	}
}

// StartComponent starts a component that does not run, and waits until it is
// healthy, for as long as ctx allows.
func (c *Cluster) StartComponent(ctx context.Context, name Component) error {
	if c.process(name) != nil {
		return fmt.Errorf("%s runs already", name)
	}
	if err := c.startProcess(ctx, name); err != nil {
		return err
	}
	return c.waitHealthy(ctx, name)
}

// StopComponent asks a component to end and waits for it. Clients of the API
// server are then refused.
func (c *Cluster) StopComponent(name Component) error { return c.stopProcess(name, syscall.SIGTERM) }

// KillComponent ends a component as a crash does.
func (c *Cluster) KillComponent(name Component) error { return c.stopProcess(name, syscall.SIGKILL) }

// FreezeComponent makes a component hang: its port takes connections, and
// nobody answers them. ThawComponent lets it go on.
func (c *Cluster) FreezeComponent(name Component) error { return c.signal(name, syscall.SIGSTOP) }

// ThawComponent ends what FreezeComponent began.
func (c *Cluster) ThawComponent(name Component) error { return c.signal(name, syscall.SIGCONT) }

func (c *Cluster) signal(name Component, sig syscall.Signal) error {
	p := c.process(name)
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	return nil
}

// waitHealthy waits until a component says that it is healthy.
func (c *Cluster) waitHealthy(ctx context.Context, name Component) error {
	p := c.process(name)
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	client := c.healthClient()
	defer client.CloseIdleConnections()
	for {
		err := c.healthy(ctx, client, name)
		if err == nil {
			c.cfg.Log.Debug("Component is healthy", "part", string(name))
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at its start; its log ends so:\n%s", name, c.Tail(name))
		default:
		}
		if !retry.Sleep(ctx, healthPause) {
			return fmt.Errorf("wait for %s: %w; last: %w", name, ctx.Err(), err)
		}
	}
}

// healthClient trusts what the cluster's authority signed.
func (c *Cluster) healthClient() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca.CertPEM())
	return &http.Client{
		Timeout:   healthTimeout,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
}

// healthy asks once.
func (c *Cluster) healthy(ctx context.Context, client *http.Client, name Component) error {
	if name == Etcd {
		// It listens only once it has its data.
		conn, err := (&net.Dialer{Timeout: healthTimeout}).DialContext(ctx, "unix", socketPath(c.cfg.Dir))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	path := "readyz"
	if name == ControllerManager {
		path = "healthz" // it has no other
	}
	url := fmt.Sprintf("https://127.0.0.1:%d/%s", c.ports[name], path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 2<<10)) // for people
		return fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return nil
}

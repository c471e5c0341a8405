package controlplane

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"regexp"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// proxyUser is who the aggregator is to the servers behind it.
const proxyUser = "front-proxy-client"

// credentials are the certificates of the components.
type credentials struct {
	serving   pki.Pair               // the API server's
	toKubelet pki.Pair               // the API server's, to kubelets
	proxy     pki.Pair               // the aggregator's, to the servers behind it
	proxyCA   string                 // file: the authority of proxy, which signs nothing else
	clients   map[Component]pki.Pair // what the others serve their health with
}

func (c *Cluster) prepareCredentials() error {
	var err error
	if c.ca, err = pki.Open(pki.Config{Dir: c.path("pki")}); err != nil {
		return err
	}
	proxyCA, err := pki.Open(pki.Config{Dir: c.path("pki", "front-proxy")})
	if err != nil {
		return err
	}
	c.creds.proxyCA = proxyCA.CertFile()
	if c.creds.proxy, err = issue(proxyCA, pki.Request{File: "client", User: proxyUser}); err != nil {
		return err
	}
	if _, err := c.ca.TokenKey(); err != nil {
		return err
	}
	names, err := c.servingNames()
	if err != nil {
		return err
	}
	if c.creds.serving, err = issue(c.ca, pki.Request{File: "apiserver", User: "kube-apiserver", Names: names}); err != nil {
		return err
	}
	// bootstrap binds the user to what it needs.
	if c.creds.toKubelet, err = issue(c.ca, pki.Request{File: "apiserver-kubelet-client", User: kubeletClientUser}); err != nil {
		return err
	}
	c.creds.clients = map[Component]pki.Pair{}
	for _, name := range []Component{ControllerManager, Scheduler} {
		if c.creds.clients[name], err = issue(c.ca, pki.Request{
			File: string(name) + "-serving", User: string(name), Names: []string{"localhost", "127.0.0.1"},
		}); err != nil {
			return err
		}
		if err := c.writeClient(string(name), "system:"+string(name)); err != nil {
			return err
		}
	}
	if err := c.writeClient("admin", "kubernetes-admin", user.SystemPrivilegedGroup); err != nil {
		return err
	}
	return c.writeKubeconfig(c.BootstrapKubeconfig(), &clientcmdapi.AuthInfo{Token: c.token})
}

// issue returns the certificate as it is now: a control plane for tests
// does not live long enough for another.
func issue(a *pki.Authority, r pki.Request) (pki.Pair, error) {
	leaf, err := a.Issue(r)
	if err != nil {
		return pki.Pair{}, err
	}
	return leaf.Pair(), nil
}

// servingNames are the names by which clients reach the API server.
func (c *Cluster) servingNames() ([]string, error) {
	_, services, err := net.ParseCIDR(c.cfg.ServiceCIDR)
	if err != nil {
		return nil, fmt.Errorf("service CIDR: %w", err)
	}
	first := services.IP.To4() // the service "kubernetes" has the first address
	first[3]++
	names := []string{
		"localhost", "127.0.0.1", "::1", first.String(),
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	if c.cfg.Address != "" {
		names = append(names, c.cfg.Address)
	}
	return names, nil
}

// Client makes a client certificate for user and groups and returns a
// kubeconfig file with it. file is the base name of the files.
func (c *Cluster) Client(file, user string, groups ...string) (kubeconfig string, err error) {
	return c.path(file + ".kubeconfig"), c.writeClient(file, user, groups...)
}

func (c *Cluster) writeClient(file, user string, groups ...string) error {
	pair, err := issue(c.ca, pki.Request{File: file, User: user, Groups: groups})
	if err != nil {
		return err
	}
	return c.writeKubeconfig(c.path(file+".kubeconfig"), &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key})
}

func (c *Cluster) writeKubeconfig(file string, auth *clientcmdapi.AuthInfo) error {
	const name = "controlplane"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthorityData: c.ca.CertPEM()}
	k.AuthInfos[name] = auth
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	data, err := clientcmd.Write(*k)
	if err != nil {
		return fmt.Errorf("encode kubeconfig %s: %w", file, err)
	}
	return atomicfile.Write(file, data, 0o600)
}

// tokenForm is upstream's form of a bootstrap token.
var tokenForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// bootstrapToken reads the token in file, or makes a new one where there is none.
func bootstrapToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text := strings.ToLower(rand.Text()) // 26 letters and digits
		token := text[:6] + "." + text[6:22]
		return token, atomicfile.Write(file, []byte(token+"\n"), 0o600)
	case err != nil:
		return "", fmt.Errorf("read the bootstrap token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if !tokenForm.MatchString(token) {
		return "", fmt.Errorf("%s holds no bootstrap token: remove it to have a new one", file)
	}
	return token, nil
}

// Serving makes a certificate by which a server of that user answers under names,
// as a kubelet does, and returns its files.
func (c *Cluster) Serving(file, user string, names ...string) (certFile, keyFile string, err error) {
	pair, err := issue(c.ca, pki.Request{File: file, User: user, Groups: []string{"system:nodes"}, Names: names})
	return pair.CertFile, pair.KeyFile, err
}

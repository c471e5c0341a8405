package localapi

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// adminFile is the base name of the administrator's certificate.
const adminFile = "admin"

// certificates are what one API needs of its authority.
type certificates struct {
	serving  *pki.Leaf // the API's own
	admin    *pki.Leaf // in the admin kubeconfig
	kubelet  *pki.Leaf // the kubelet's, to the API
	toNode   *pki.Leaf // the API's, to the kubelet
	tokenKey *ecdsa.PrivateKey
}

// NodeUser is the name by which the API knows the kubelet of a node.
func NodeUser(node string) string { return "system:node:" + node }

func (s *Server) prepareCertificates() error {
	var err error
	if s.pki, err = pki.Open(pki.Config{Dir: s.cfg.PKIDir, Life: s.cfg.CertificateLife, Now: s.cfg.Now}); err != nil {
		return err
	}
	if err := s.pki.ClockErr(); err != nil {
		s.log.Warn("the clock is wrong", "err", err)
	}
	if s.certs.tokenKey, err = s.pki.TokenKey(); err != nil {
		return err
	}
	for leaf, request := range map[**pki.Leaf]pki.Request{
		&s.certs.serving: {File: "apiserver", User: "kube-apiserver", Names: s.servingNames(), MoreNames: s.cfg.MoreNames},
		&s.certs.admin:   {File: adminFile, User: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup}},
		&s.certs.kubelet: {File: "kubelet-client", User: NodeUser(s.cfg.NodeName), Groups: []string{user.NodesGroup}},
		&s.certs.toNode:  {File: "apiserver-kubelet-client", User: "kube-apiserver-kubelet-client", Groups: []string{user.SystemPrivilegedGroup}},
	} {
		if *leaf, err = s.pki.Issue(request); err != nil {
			return err
		}
	}
	return nil
}

// useRenewed puts certificates to use that were renewed while the API runs. The
// kubelet asks for its serving certificate at each handshake.
func (s *Server) useRenewed(names []string) error {
	s.serving.changed()
	// An open connection stands for the certificate that it began with, which
	// is refused once that has ended.
	s.connections.CloseAll()
	if s.cfg.AdminRenewed != nil && slices.Contains(names, adminFile) {
		return s.cfg.AdminRenewed()
	}
	return nil
}

// Certificates tells of every certificate of the node, for people.
func (s *Server) Certificates() []pki.Certificate { return s.pki.Certificates() }

// CertificateFaults is what a person must mend: the clock, and certificates
// that could not be renewed.
func (s *Server) CertificateFaults() []error {
	faults := s.pki.Faults()
	if err := s.pki.ClockErr(); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// servingNames are the names of the API's certificate: every way by which a
// client on this node may reach it.
func (s *Server) servingNames() []string {
	names := []string{
		"localhost", "127.0.0.1", "::1", s.cfg.NodeName,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	for _, l := range s.listeners {
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsUnspecified() {
			names = append(names, ip.String())
		}
	}
	return append(names, s.cfg.Names...)
}

// CACert is the certificate (PEM) of the authority that signed every
// certificate here: what clients of the API and of the kubelet trust.
func (s *Server) CACert() []byte { return s.pki.CertPEM() }

// ClientCAFile is the file of CACert: what the kubelet's server verifies its
// clients with.
func (s *Server) ClientCAFile() string { return s.pki.CertFile() }

// KubeletServing returns the certificate of the kubelet's HTTPS server. names
// are host names and IP addresses of the node beside its name and loopback. It
// is kept current while the API runs.
func (s *Server) KubeletServing(names ...string) (*pki.Leaf, error) {
	return s.pki.Issue(pki.Request{
		File: "kubelet", User: NodeUser(s.cfg.NodeName), Groups: []string{user.NodesGroup},
		Names: append([]string{s.cfg.NodeName, "localhost", "127.0.0.1", "::1"}, names...),
	})
}

// KubeletConfig is the client configuration of this node's kubelet.
func (s *Server) KubeletConfig() *rest.Config { return s.clientConfig(s.certs.kubelet) }

// AdminConfig is the client configuration of an administrator, who may do
// everything.
func (s *Server) AdminConfig() *rest.Config { return s.clientConfig(s.certs.admin) }

// ClientConfig makes a client certificate for user and groups and returns
// the configuration that uses it. file is the base name of its files.
func (s *Server) ClientConfig(file, user string, groups ...string) (*rest.Config, error) {
	leaf, err := s.pki.Issue(pki.Request{File: file, User: user, Groups: groups})
	if err != nil {
		return nil, err
	}
	return s.clientConfig(leaf), nil
}

// clientConfig asks for the certificate at each handshake, so that a client
// takes up one that was renewed with its next connection.
func (s *Server) clientConfig(leaf *pki.Leaf) *rest.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.pki.CertPEM())
	return &rest.Config{
		Host: "https://" + s.Address(),
		Transport: utilnet.SetTransportDefaults(&http.Transport{
			DialContext:        s.connections.DialContext,
			DisableCompression: true, // never leaves the machine
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS12,
				RootCAs:    roots,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					return leaf.TLS(), nil
				},
			},
		}),
		ContentConfig: protobuf(),
	}
}

// AdminKubeconfig is a kubeconfig file for an administrator. Whoever can read
// it owns the node.
func (s *Server) AdminKubeconfig() ([]byte, error) {
	const name = "holdfast"
	pair := s.certs.admin.Pair()
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + s.Address(), CertificateAuthorityData: s.pki.CertPEM()}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	data, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("encode the admin kubeconfig: %w", err)
	}
	return data, nil
}

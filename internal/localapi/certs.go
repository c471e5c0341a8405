package localapi

import (
	"crypto/ecdsa"
	"fmt"
	"net"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// certificates are what one API needs of its authority.
type certificates struct {
	serving  pki.Pair // the API's own
	admin    pki.Pair // in the admin kubeconfig
	kubelet  pki.Pair // the kubelet's, to the API
	toNode   pki.Pair // the API's, to the kubelet
	tokenKey *ecdsa.PrivateKey
}

// NodeUser is the name by which the API knows the kubelet of a node.
func NodeUser(node string) string { return "system:node:" + node }

func (s *Server) prepareCertificates() error {
	var err error
	if s.pki, err = pki.Open(s.cfg.PKIDir); err != nil {
		return err
	}
	if s.certs.tokenKey, err = s.pki.TokenKey(); err != nil {
		return err
	}
	for pair, request := range map[*pki.Pair]pki.Request{
		&s.certs.serving: {File: "apiserver", User: "kube-apiserver", Names: s.servingNames()},
		&s.certs.admin:   {File: "admin", User: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup}},
		&s.certs.kubelet: {File: "kubelet-client", User: NodeUser(s.cfg.NodeName), Groups: []string{user.NodesGroup}},
		&s.certs.toNode:  {File: "apiserver-kubelet-client", User: "kube-apiserver-kubelet-client", Groups: []string{user.SystemPrivilegedGroup}},
	} {
		if *pair, err = s.pki.Issue(request); err != nil {
			return err
		}
	}
	return nil
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
// are host names and IP addresses of the node beside its name and loopback.
func (s *Server) KubeletServing(names ...string) (pki.Pair, error) {
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
	pair, err := s.pki.Issue(pki.Request{File: file, User: user, Groups: groups})
	if err != nil {
		return nil, err
	}
	return s.clientConfig(pair), nil
}

func (s *Server) clientConfig(pair pki.Pair) *rest.Config {
	return &rest.Config{
		Host: "https://" + s.Address(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: s.pki.CertPEM(), CertData: pair.Cert, KeyData: pair.Key,
		},
		DisableCompression: true, // never leaves the machine
		ContentConfig:      protobuf(),
	}
}

// AdminKubeconfig is a kubeconfig file for an administrator. Whoever can read
// it owns the node.
func (s *Server) AdminKubeconfig() ([]byte, error) {
	const name = "holdfast"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + s.Address(), CertificateAuthorityData: s.pki.CertPEM()}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: s.certs.admin.Cert, ClientKeyData: s.certs.admin.Key}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	data, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("encode the admin kubeconfig: %w", err)
	}
	return data, nil
}

package clusternode

import (
	"cmp"
	"crypto/x509"
	"errors"
	"net/netip"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/certfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/identity"
)

// openIdentity reads by which credentials the node and others know each other.
func (n *Node) openIdentity() (err error) {
	k := n.cfg.Kubelet
	if n.cfg.Kubeconfig == "" {
		return errors.New("--kubeconfig is missing: name the file that says how the cluster's API is reached; \"holdfast up\" runs static pods without a cluster")
	}
	n.clients = x509.NewCertPool // no client has a certificate that counts
	if ca := k.Authentication.X509.ClientCAFile; ca != "" {
		n.clients = certfile.NewPool(ca, nil, identity.Told(n.log, ca)).Authorities
	}
	n.identity, err = identity.New(identity.Config{
		Node: n.cfg.Name, Kubeconfig: n.cfg.Kubeconfig, Bootstrap: n.cfg.Bootstrap,
		Dir:    cmp.Or(n.cfg.CertDir, filepath.Join(n.cfg.Root, "pki")),
		Rotate: k.RotateCertificates, ServerBootstrap: k.ServerTLSBootstrap, ServingCert: k.TLSCertFile, ServingKey: k.TLSPrivateKeyFile,
		Addresses: n.addresses, Metrics: n.metrics, Log: n.log,
	})
	return err
}

// addresses are the node's, as far as they are known. The agent is there before
// anybody asks.
func (n *Node) addresses() []netip.Addr {
	var all []netip.Addr
	for _, text := range n.kubelet.HostIPs() {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

package clusternode

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/certfile"
)

// files are the identity that is in files of others.
type files struct {
	rest    *rest.Config
	serving *certfile.Pair
	clients *certfile.Pool // nil: no client has a certificate that counts
}

func openIdentity(cfg Config) (*files, error) {
	k := cfg.Kubelet
	if cfg.Kubeconfig == "" {
		return nil, errors.New("--kubeconfig is missing: name the file that says how the cluster's API is reached; \"holdfast up\" runs static pods without a cluster")
	}
	config, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	if k.TLSCertFile == "" || k.TLSPrivateKeyFile == "" {
		return nil, errors.New("tlsCertFile and tlsPrivateKeyFile: both are wanted, the certificate of the kubelet's API and its key, in PEM")
	}
	f := &files{rest: config, serving: certfile.NewPair(k.TLSCertFile, k.TLSPrivateKeyFile, told(cfg.Log, k.TLSCertFile))}
	if ca := k.Authentication.X509.ClientCAFile; ca != "" {
		f.clients = certfile.NewPool(ca, nil, told(cfg.Log, ca))
	}
	return f, nil
}

// told logs what becomes of files of certificates.
func told(log *slog.Logger, file string) func(error) {
	log = log.With("part", "certificates", "file", file)
	return func(err error) {
		if err != nil {
			log.Warn("certificates cannot be taken up: the ones before count", "err", err)
			return
		}
		log.Info("certificates taken up")
	}
}

func (f *files) client() *rest.Config { return rest.CopyConfig(f.rest) }

func (f *files) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := f.serving.Certificate(); pair != nil {
		return pair, nil
	}
	return nil, f.serving.Err()
}

func (f *files) clientCAs() *x509.CertPool {
	if f.clients == nil {
		return x509.NewCertPool()
	}
	return f.clients.Authorities()
}

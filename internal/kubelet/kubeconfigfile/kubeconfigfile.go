// Package kubeconfigfile reads and writes the kubeconfigs of a node agent. Every
// form that clientcmd knows is good: certificates in the file or in files of their
// own, a token or a file of one, a program that is asked.
//
// Everything may be called from any goroutine.
package kubeconfigfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

// The errors of Load, for errors.Is.
var (
	// ErrNone is returned when there is no file.
	ErrNone = errors.New("there is no such kubeconfig")
	// ErrNoCertificate is returned when the file names a client certificate that is
	// not there, as that of a node does which nobody has let in yet.
	ErrNoCertificate = errors.New("the client certificate that it names is not there")
)

// maxSize is how many bytes a file may have; one with certificates has 10 KiB.
const maxSize = 1 << 20

// Load reads the file and what it refers to: its current context, and files that
// it names, relative to its folder, are there. Errors name the file and what to do.
// ErrNone: it is not there. note is what should not be as it is; empty: nothing.
func Load(path string) (c *rest.Config, note string, err error) {
	data, info, err := regularfile.ReadAll(path, maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("kubeconfig %s: %w", path, ErrNone)
	}
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		note = fmt.Sprintf("others than its owner may read %s (mode %04o), which holds credentials or leads to them: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, "", fmt.Errorf("kubeconfig %s is empty: write one as kubeadm join or kubectl config does", path)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig %s is not a kubeconfig: %w", path, err)
	}
	for _, c := range config.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range config.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, "", fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := check(path, config); err != nil {
		return nil, "", err
	}
	c, err = clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return c, note, nil
}

// check looks for what clientcmd would pass over, or tell without a name.
func check(path string, config *clientcmdapi.Config) error {
	current, ok := config.Contexts[config.CurrentContext]
	if config.CurrentContext == "" || !ok {
		return fmt.Errorf("kubeconfig %s: its current-context is %q, which is no context of it: kubectl config use-context NAME --kubeconfig %s", path, config.CurrentContext, path)
	}
	cluster, ok := config.Clusters[current.Cluster]
	if !ok {
		return fmt.Errorf("kubeconfig %s: its current context names the cluster %q, which is not in it: kubectl config set-cluster %[2]s --kubeconfig %[1]s …", path, current.Cluster)
	}
	if current.AuthInfo != "" && config.AuthInfos[current.AuthInfo] == nil {
		return fmt.Errorf("kubeconfig %s: its current context names the user %q, who is not in it: kubectl config set-credentials %[2]s --kubeconfig %[1]s …", path, current.AuthInfo)
	}
	if user := config.AuthInfos[current.AuthInfo]; user != nil && user.ClientCertificate != "" && len(user.ClientCertificateData) == 0 {
		if _, err := os.Stat(user.ClientCertificate); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("kubeconfig %s: %w: %s", path, ErrNoCertificate, user.ClientCertificate)
		}
	}
	if u, err := url.Parse(cluster.Server); err != nil || u.Host == "" {
		return fmt.Errorf("kubeconfig %s: the server of the cluster %q is %q: write its address, such as https://10.0.0.1:6443", path, current.Cluster, cluster.Server)
	}
	return nil
}

// Write writes a kubeconfig for the API of c, with the certificate and key that
// are in the file pair. It may be read by its owner alone.
func Write(path string, c *rest.Config, pair string) error {
	ca := c.CAData
	if len(ca) == 0 && c.CAFile != "" {
		data, _, err := regularfile.ReadAll(c.CAFile, maxSize)
		if err != nil {
			return fmt.Errorf("authorities of the API: %w", err)
		}
		ca = data
	}
	cluster := &clientcmdapi.Cluster{
		Server: c.Host + c.APIPath, InsecureSkipTLSVerify: c.Insecure,
		CertificateAuthorityData: ca, TLSServerName: c.ServerName,
	}
	if c.Proxy != nil { // clientcmd makes it of the one address in proxy-url
		if u, err := c.Proxy(nil); err == nil && u != nil {
			cluster.ProxyURL = u.String()
		}
	}
	const name = "default"
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificate: pair, ClientKey: pair}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: name}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("encode a kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("folder of the kubeconfig: %w", err)
	}
	return atomicfile.Write(path, data, 0o600)
}

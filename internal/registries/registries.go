// Package registries is how a node reaches registries of images: through which
// mirrors, with which credentials, through which proxy. A [Config] is the
// section images of the node's configuration.
//
// Mirrors are written where containerd reads them at each pull; credentials are
// read from their files at each pull and never written; proxies are part of
// containerd's environment. All functions may be called at once, but WriteHosts
// for one folder.
package registries

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Config says how registries are reached. The zero value is: directly,
// without credentials, through the proxy that the environment names.
type Config struct {
	// Mirrors are asked in place of registries.
	Mirrors []Mirror `json:"mirrors,omitempty"`
	// Credentials are used for the images of every pod, after those that its own
	// pull secrets give. They are those of the registry in the image's name; a
	// mirror of it gets them too.
	Credentials []Credential `json:"credentials,omitempty"`
	// DockerConfigFile is a file as `docker login` writes it, with more such
	// credentials. Mode 0600. Credential helpers are refused. Default: none.
	DockerConfigFile string `json:"dockerConfigFile,omitempty"`
	// Proxy is what containerd reaches registries through.
	Proxy Proxy `json:"proxy,omitzero"`
}

// A Mirror says who is asked in place of a registry.
type Mirror struct {
	// Registry is the host, with its port if it has one, as image names have it
	// (docker.io for names without any), or "*" for every registry that has no
	// mirror of its own. Required.
	Registry string `json:"registry"`
	// Endpoints are asked in this order, and after them the registry itself. At
	// least one. If the last is the registry itself, it says how to reach that.
	Endpoints []Endpoint `json:"endpoints"`
}

// An Endpoint is one place to ask.
type Endpoint struct {
	// URL is https://host[:port], or http:// for one without TLS. Required.
	URL string `json:"url"`
	// OverridePath takes the path of the URL as it is, for registries that do
	// not have their API at /v2: nothing is added. Default: false.
	OverridePath bool `json:"overridePath,omitempty"`
	// Capabilities are what it may be asked: "resolve" (which digest a tag has)
	// and "pull". Default: both.
	Capabilities []string `json:"capabilities,omitempty"`
	// CAFile holds PEM certificates of authorities that may have signed its
	// certificate, beside those that the system knows. Default: none.
	CAFile string `json:"caFile,omitempty"`
	// ClientCertFile and ClientKeyFile are PEM files of the certificate that is
	// shown to it. Both or none. Default: none.
	ClientCertFile string `json:"clientCertFile,omitempty"`
	ClientKeyFile  string `json:"clientKeyFile,omitempty"`
	// InsecureSkipVerify takes whatever certificate it has: who sits between can
	// give the node any image. Default: false.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// A Credential is a name and a password for registries.
type Credential struct {
	// Registry is a host, with a path if it is for a part of the registry only,
	// such as registry.example/team. Each part of the host may have wildcards.
	// Required.
	Registry string `json:"registry"`
	// Username is required.
	Username string `json:"username"`
	// PasswordFile holds the password, or token; a newline at its end does not
	// count. Mode 0600. Required.
	PasswordFile string `json:"passwordFile"`
}

// A Proxy says what to reach servers through. Each empty field is as the
// environment of the node says.
type Proxy struct {
	// HTTPProxy and HTTPSProxy are for http:// and https:// servers:
	// http://host:port, https:// or socks5:// likewise.
	HTTPProxy  string `json:"httpProxy,omitempty"`
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	// NoProxy lists what is reached directly: hosts, .domains, addresses and
	// subnets, with commas between.
	NoProxy string `json:"noProxy,omitempty"`
}

// Absolute returns c with every path absolute.
func (c Config) Absolute() (Config, error) {
	var errs []error
	abs := func(path string) string {
		if path == "" {
			return ""
		}
		full, err := filepath.Abs(path)
		errs = append(errs, err)
		return full
	}
	c.DockerConfigFile = abs(c.DockerConfigFile)
	c.Credentials = append([]Credential(nil), c.Credentials...) // nil if empty, as it is read back
	for i := range c.Credentials {
		c.Credentials[i].PasswordFile = abs(c.Credentials[i].PasswordFile)
	}
	c.Mirrors = append([]Mirror(nil), c.Mirrors...)
	for i := range c.Mirrors {
		m := &c.Mirrors[i]
		m.Endpoints = append([]Endpoint(nil), m.Endpoints...)
		for j := range m.Endpoints {
			e := &m.Endpoints[j]
			e.CAFile, e.ClientCertFile, e.ClientKeyFile = abs(e.CAFile), abs(e.ClientCertFile), abs(e.ClientKeyFile)
		}
	}
	return c, errors.Join(errs...)
}

// Check returns everything that is wrong with c, each with its field, the files
// that it names included. field is what c is called: "images".
func (c Config) Check(field string) error {
	var errs []error
	seen := map[string]bool{}
	for i, m := range c.Mirrors {
		at := fmt.Sprintf("%s.mirrors[%d]", field, i)
		if seen[m.Registry] {
			errs = append(errs, fmt.Errorf("%s.registry: %q is there twice", at, m.Registry))
		}
		seen[m.Registry] = true
		errs = append(errs, m.check(at))
	}
	for i, cred := range c.Credentials {
		errs = append(errs, cred.check(fmt.Sprintf("%s.credentials[%d]", field, i)))
	}
	if c.DockerConfigFile != "" {
		if _, err := readDockerConfig(c.DockerConfigFile); err != nil {
			errs = append(errs, fmt.Errorf("%s.dockerConfigFile: %w", field, err))
		}
	}
	for name, value := range map[string]string{"httpProxy": c.Proxy.HTTPProxy, "httpsProxy": c.Proxy.HTTPSProxy} {
		if err := checkProxy(value); err != nil {
			errs = append(errs, fmt.Errorf("%s.proxy.%s: %w", field, name, err))
		}
	}
	return errors.Join(errs...)
}

func (m Mirror) check(at string) error {
	var errs []error
	if err := checkRegistry(m.Registry); err != nil && m.Registry != "*" {
		errs = append(errs, fmt.Errorf("%s.registry: %w", at, err))
	}
	if len(m.Endpoints) == 0 {
		errs = append(errs, fmt.Errorf("%s.endpoints: there is none", at))
	}
	for i, e := range m.Endpoints {
		for name, err := range e.problems() {
			errs = append(errs, fmt.Errorf("%s.endpoints[%d].%s: %w", at, i, name, err))
		}
	}
	return errors.Join(errs...)
}

// checkRegistry says why name is no host[:port].
func checkRegistry(name string) error {
	u, err := url.Parse("https://" + name)
	switch {
	case name == "":
		return errors.New("it is empty")
	case strings.Contains(name, "://") || err != nil || u.Host != name:
		return fmt.Errorf("%q is no host, with a port or without, such as registry.example:5000", name)
	case slices.Contains([]string{"index.docker.io", "registry-1.docker.io"}, name):
		return fmt.Errorf("%q never stands in the name of an image: write docker.io", name)
	}
	return nil
}

// problems returns what is wrong, by field.
func (e Endpoint) problems() map[string]error {
	wrong := map[string]error{}
	u, err := url.Parse(e.URL)
	switch {
	case err != nil:
		wrong["url"] = err
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		wrong["url"] = fmt.Errorf("%q: want https://host[:port], or http:// for one without TLS", e.URL)
	case u.User != nil:
		wrong["url"] = errors.New("it holds a user name: credentials go under images.credentials")
	case u.RawQuery != "" || u.Fragment != "":
		wrong["url"] = fmt.Errorf("%q: want no ? and no #", e.URL)
	}
	if e.OverridePath && err == nil && strings.Trim(u.Path, "/") == "" {
		wrong["overridePath"] = fmt.Errorf("the URL %q has no path", e.URL)
	}
	for _, c := range e.Capabilities {
		if c != "pull" && c != "resolve" {
			wrong["capabilities"] = fmt.Errorf("%q: want pull, resolve or both", c)
		}
	}
	if err == nil && u.Scheme == "http" {
		for name, is := range map[string]bool{
			"caFile": e.CAFile != "", "clientCertFile": e.ClientCertFile != "", "clientKeyFile": e.ClientKeyFile != "", "insecureSkipVerify": e.InsecureSkipVerify,
		} {
			if is {
				wrong[name] = fmt.Errorf("has no meaning for %s, which has no TLS", e.URL)
			}
		}
		return wrong
	}
	e.checkTLS(wrong)
	return wrong
}

func (e Endpoint) checkTLS(wrong map[string]error) {
	if e.CAFile != "" {
		pem, err := os.ReadFile(e.CAFile)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s holds no certificate in PEM", e.CAFile)
		}
		if err != nil {
			wrong["caFile"] = err
		}
	}
	switch {
	case e.ClientCertFile != "" && e.ClientKeyFile != "":
		if _, err := tls.LoadX509KeyPair(e.ClientCertFile, e.ClientKeyFile); err != nil {
			wrong["clientCertFile"] = err
		}
	case e.ClientCertFile != "":
		wrong["clientKeyFile"] = errors.New("it is missing beside clientCertFile")
	case e.ClientKeyFile != "":
		wrong["clientCertFile"] = errors.New("it is missing beside clientKeyFile")
	}
}

func checkProxy(value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil {
		return errors.New("it is no URL") // err would show the password
	}
	if !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) || u.Host == "" {
		return fmt.Errorf("%q: want http://host:port, or https:// or socks5:// likewise", u.Redacted())
	}
	return nil
}

// IsZero reports whether nothing is said.
func (p Proxy) IsZero() bool { return p == Proxy{} }

// Environ returns the environment env with the proxy in it.
func (p Proxy) Environ(env []string) []string {
	set := map[string]string{"HTTP_PROXY": p.HTTPProxy, "HTTPS_PROXY": p.HTTPSProxy, "NO_PROXY": p.NoProxy}
	out := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return set[strings.ToUpper(name)] != "" // both spellings are read
	})
	for _, name := range proxyVariables {
		if set[name] != "" {
			out = append(out, name+"="+set[name])
		}
	}
	return out
}

var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}

// ProxyOf returns what of env says which proxy is used, sorted: a program that
// has read it needs a restart when it changes.
func ProxyOf(env []string) []string {
	var out []string
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if slices.Contains(proxyVariables, strings.ToUpper(name)) && value != "" {
			out = append(out, entry)
		}
	}
	slices.Sort(out)
	return out
}

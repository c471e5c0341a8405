package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/manifesturl"
	"github.com/holdfast-dev/holdfast/internal/registries"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// ConfigAPIVersion and ConfigKind head a configuration file.
const (
	ConfigAPIVersion = "holdfast.dev/v1alpha1"
	ConfigKind       = "NodeConfiguration"
)

// A Config says what one node is. Its JSON names are those of the file that
// "holdfast up --config" reads; the flags have the same names in their own
// spelling, and win over the file.
type Config struct {
	// RootDir holds everything that the node keeps. Default /var/lib/holdfast.
	RootDir string `json:"rootDir,omitempty"`

	// ManifestDir is the folder that pods are read from. Default
	// <rootDir>/manifests, which is made if it does not exist; another folder
	// may appear later.
	ManifestDir string `json:"manifestDir,omitempty"`

	// ManifestURL is where pods are read from, too. Default: nowhere.
	ManifestURL manifesturl.Source `json:"manifestURL,omitzero"`

	// NodeName is the name of the Node object. Default: the host's name in
	// lower case. A wrong name is an error at start.
	NodeName string `json:"nodeName,omitempty"`

	// APIPort is where the embedded API listens, on loopback and on the pods'
	// bridge. Default 6443; 0 in a file, or on the command line, is any free
	// port.
	APIPort *int `json:"apiPort,omitempty"`

	// BindAddress lists addresses of this machine where the embedded API
	// listens too, for other machines: 0.0.0.0 for all of IPv4, :: for all. The
	// same port. Default: none. One that no interface has yet is a fault, shown
	// by status, and no reason not to start.
	BindAddress []string `json:"bindAddress,omitempty"`

	// APINames lists host names and addresses by which other machines reach
	// the API, for its certificate. Those of BindAddress and the host's name
	// are in it anyway.
	APINames []string `json:"apiNames,omitempty"`

	// KubeletPort is where the kubelet's API listens. Default 10250; 0 is any
	// free port.
	KubeletPort *int `json:"kubeletPort,omitempty"`

	// ContainerRuntimeEndpoint names a runtime that is there already, such as
	// unix:///run/containerd/containerd.sock. Default: a private containerd.
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint,omitempty"`

	// PodCIDR is the subnet of the pods' addresses, IPv4. Default: a /24 that
	// nobody on this machine uses, chosen once. One that overlaps a route, or is
	// changed while pods run, is an error at start. Not for a runtime that is
	// there already: its own network configuration says it.
	PodCIDR string `json:"podCIDR,omitempty"`

	// PLEGThreshold is for how long the runtime may fail to list its pods until
	// the node is not ready ("PLEG is not healthy"). Default 3m, which upstream
	// has built in; at least 10s, for a slow machine more. Too short a time makes
	// the node flap.
	PLEGThreshold *metav1.Duration `json:"plegThreshold,omitempty"`

	// Kubelet holds fields of upstream's KubeletConfiguration.
	Kubelet KubeletSettings `json:"kubelet,omitzero"`

	// Images says how registries are reached: mirrors, credentials, proxies.
	Images registries.Config `json:"images,omitzero"`

	// RuntimeHandlers are ways to run pods beside the bundled runc, which
	// RuntimeClasses name. Default: none. Not for a runtime that is there already:
	// its own configuration says it.
	RuntimeHandlers []runtimehost.Handler `json:"runtimeHandlers,omitempty"`

	// ImageCredentialProviderConfig is a file, or a folder of files, of upstream's
	// CredentialProviderConfig: the programs that are asked for credentials of
	// images. ImageCredentialProviderBinDir is the folder of those programs. Both
	// or none. Default: none.
	ImageCredentialProviderConfig string `json:"imageCredentialProviderConfig,omitempty"`
	ImageCredentialProviderBinDir string `json:"imageCredentialProviderBinDir,omitempty"`

	// LogFile is the file that standard error goes to, if it is the node's own:
	// it is kept within twice 16 MiB. Default: standard error is somebody else's.
	LogFile string `json:"-"`

	// Log takes what operators read. Progress is called with each step of a
	// start, Ready once when the node is ready; both may be nil.
	Log      *slog.Logger             `json:"-"`
	Progress func(step string)        `json:"-"`
	Ready    func(*instance.Instance) `json:"-"`
}

// Default ports, the ones that Kubernetes uses.
const (
	DefaultAPIPort     = 6443
	DefaultKubeletPort = 10250
)

// minPLEGThreshold leaves room for two lists, and for one that takes a while.
const minPLEGThreshold = 10 * time.Second

// plegThreshold returns 0 for the default.
func (c *Config) plegThreshold() time.Duration {
	if c.PLEGThreshold == nil {
		return 0
	}
	return c.PLEGThreshold.Duration
}

// LoadConfig reads a configuration file. It refuses fields that it does not
// know, since one that is ignored is one that somebody relies on.
func LoadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	var file struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Config
	}
	if err := checkShape(data); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			field := wrong.Field[strings.LastIndex(wrong.Field, ".")+1:]
			err = fmt.Errorf("%s: want %s, not %s", field, wrong.Type.Kind(), wrong.Value)
		}
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	if file.APIVersion != ConfigAPIVersion || file.Kind != ConfigKind {
		return Config{}, fmt.Errorf("configuration %s: apiVersion is %q and kind is %q; want %q and %q",
			path, file.APIVersion, file.Kind, ConfigAPIVersion, ConfigKind)
	}
	return file.Config, nil
}

// fileFields are the fields of a configuration file.
var fileFields = []string{
	"apiVersion", "kind", "rootDir", "manifestDir", "manifestURL", "nodeName", "apiPort", "bindAddress", "apiNames", "kubeletPort", "containerRuntimeEndpoint", "podCIDR", "plegThreshold", "kubelet", "images", "runtimeHandlers",
	"imageCredentialProviderConfig", "imageCredentialProviderBinDir",
}

// checkShape refuses, with the line, what decoding would pass over or say
// without a place: a second document, a field that is not there or there twice.
func checkShape(data []byte) error {
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	var doc, more yamlv3.Node
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("it holds more than one document"), err)
	}
	if doc.Kind != yamlv3.DocumentNode || doc.Content[0].Kind != yamlv3.MappingNode {
		return fmt.Errorf("it holds no fields (it begins with \"apiVersion: %s\")", ConfigAPIVersion)
	}
	errs := checkFields(doc.Content[0], "", func(name string, value *yamlv3.Node) error {
		if name == "plegThreshold" {
			return checkDuration(name, value)
		}
		if !slices.Contains(fileFields, name) {
			return fmt.Errorf("unknown field %q (there are %s)", name, strings.Join(fileFields, ", "))
		}
		return nil
	})
	for keys := doc.Content[0].Content; len(keys) > 0; keys = keys[2:] {
		switch keys[0].Value {
		case "kubelet":
			errs = append(errs, checkKubelet(keys[1])...)
		case "manifestURL":
			errs = append(errs, checkManifestURL(keys[1])...)
		}
	}
	return errors.Join(errs...)
}

// checkDuration says what the decoder would say without the field's name.
func checkDuration(name string, value *yamlv3.Node) error {
	if _, err := time.ParseDuration(value.Value); err != nil && value.Tag != "!!null" {
		return fmt.Errorf("%s: %q is no length of time, such as 3m", name, value.Value)
	}
	return nil
}

// checkFields returns, with its line, each field of a mapping that is there
// twice or that check refuses. prefix is how the fields' names begin.
func checkFields(mapping *yamlv3.Node, prefix string, check func(name string, value *yamlv3.Node) error) []error {
	var errs []error
	seen := map[string]bool{}
	for keys := mapping.Content; len(keys) > 0; keys = keys[2:] {
		name, line := keys[0].Value, keys[0].Line
		if err := check(name, keys[1]); err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", line, err))
		} else if seen[name] {
			errs = append(errs, fmt.Errorf("line %d: field %q is written twice", line, prefix+name))
		}
		seen[name] = true
	}
	return errs
}

// Complete returns c with every default set, or everything that is wrong with it.
func (c Config) Complete() (Config, error) {
	c, err := c.withDefaults()
	if err != nil {
		return c, err
	}
	return c, c.validate()
}

func (c Config) withDefaults() (Config, error) {
	if c.RootDir == "" {
		c.RootDir = instance.DefaultRoot
	}
	root, err := filepath.Abs(c.RootDir)
	if err != nil {
		return c, fmt.Errorf("root folder: %w", err)
	}
	c.RootDir = root
	if c.ManifestDir == "" {
		c.ManifestDir = filepath.Join(c.RootDir, "manifests")
	}
	if c.ManifestDir, err = filepath.Abs(c.ManifestDir); err != nil {
		return c, fmt.Errorf("manifest folder: %w", err)
	}
	if c.ManifestURL, err = c.ManifestURL.Absolute(); err != nil {
		return c, fmt.Errorf("manifestURL: %w", err)
	}
	if c.Images, err = c.Images.Absolute(); err != nil {
		return c, fmt.Errorf("images: %w", err)
	}
	if err := c.absoluteProviders(); err != nil {
		return c, err
	}
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("name of the node: %w", err)
		}
		c.NodeName = strings.ToLower(host)
	}
	if c.APIPort == nil {
		c.APIPort = new(DefaultAPIPort)
	}
	if c.KubeletPort == nil {
		c.KubeletPort = new(DefaultKubeletPort)
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.Ready == nil {
		c.Ready = func(*instance.Instance) {}
	}
	return c, nil
}

// validate returns everything that is wrong with c.
func (c Config) validate() error {
	var errs []error
	if filepath.Dir(c.RootDir) == "/" {
		errs = append(errs, fmt.Errorf("rootDir %q: want a folder of the node's own, two levels deep or more, such as %s", c.RootDir, instance.DefaultRoot))
	}
	for _, problem := range validation.IsDNS1123Subdomain(c.NodeName) {
		errs = append(errs, fmt.Errorf("nodeName %q: %s (name one with --node-name)", c.NodeName, problem))
	}
	for name, port := range map[string]int{"apiPort": *c.APIPort, "kubeletPort": *c.KubeletPort} {
		if port < 0 || port > 65535 {
			errs = append(errs, fmt.Errorf("%s: %d is no port: 0 (any free one) to 65535", name, port))
		}
	}
	if *c.APIPort != 0 && *c.APIPort == *c.KubeletPort {
		errs = append(errs, fmt.Errorf("apiPort and kubeletPort are both %d", *c.APIPort))
	}
	if e := c.ContainerRuntimeEndpoint; e != "" && !strings.HasPrefix(e, "unix://") {
		errs = append(errs, fmt.Errorf("containerRuntimeEndpoint %q: want a unix socket, such as unix:///run/containerd/containerd.sock", e))
	}
	if t := c.PLEGThreshold; t != nil && t.Duration < minPLEGThreshold {
		errs = append(errs, fmt.Errorf("plegThreshold: %v is too short: at least %v", t.Duration, minPLEGThreshold))
	}
	if _, err := c.podSubnet(); err != nil {
		errs = append(errs, err)
	}
	if err := c.ManifestURL.Check("manifestURL"); err != nil {
		errs = append(errs, err)
	}
	if err := c.checkImages(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, runtimehost.CheckHandlers("runtimeHandlers", c.RuntimeHandlers))
	if len(c.RuntimeHandlers) > 0 && c.ContainerRuntimeEndpoint != "" {
		errs = append(errs, fmt.Errorf("runtimeHandlers: they are for the private containerd; configure the runtime at %s itself", c.ContainerRuntimeEndpoint))
	}
	if _, err := c.credentialProviders(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.validateReach()...)
	return errors.Join(append(errs, c.Kubelet.validate()...)...)
}

package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/imagedir"
	"github.com/holdfast-dev/holdfast/internal/kubelet/credentialconfig"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// imagesFolder is the folder of image archives, in the root folder.
const imagesFolder = "images"

// checkImages returns everything that is wrong with the section images.
func (c Config) checkImages() error {
	errs := []error{c.Images.Check("images")}
	if c.ContainerRuntimeEndpoint == "" {
		return errors.Join(errs...)
	}
	for field, set := range map[string]bool{"mirrors": len(c.Images.Mirrors) > 0, "proxy": !c.Images.Proxy.IsZero()} {
		if set {
			errs = append(errs, fmt.Errorf("images.%s: it is for the private containerd; tell the runtime at %s itself", field, c.ContainerRuntimeEndpoint))
		}
	}
	return errors.Join(errs...)
}

// absoluteProviders makes the paths of credential providers absolute.
func (c *Config) absoluteProviders() error {
	for _, path := range []*string{&c.ImageCredentialProviderConfig, &c.ImageCredentialProviderBinDir} {
		if *path == "" {
			continue
		}
		full, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("image credential providers: %w", err)
		}
		*path = full
	}
	return nil
}

// credentialProviders reads which programs are asked for credentials of images,
// nil for none, and says what is wrong with them.
func (c Config) credentialProviders() (*credentialconfig.Config, error) {
	const files, programs = "imageCredentialProviderConfig", "imageCredentialProviderBinDir"
	switch config, bin := c.ImageCredentialProviderConfig, c.ImageCredentialProviderBinDir; {
	case config == "" && bin == "":
		return nil, nil
	case config == "":
		return nil, fmt.Errorf("%s: it is missing beside %s", files, programs)
	case bin == "":
		return nil, fmt.Errorf("%s: it is missing beside %s", programs, files)
	}
	providers, err := credentialconfig.Load(c.ImageCredentialProviderConfig, c.ImageCredentialProviderBinDir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", files, err)
	}
	return providers, nil
}

// prepareArchives makes what imports the archives of images.
func (n *node) prepareArchives() {
	cfg := imagedir.Config{
		Dir: n.in.Path(imagesFolder), StateFile: n.in.Path("state", "images.json"),
		Report:   func(faults []manifest.Fault) { n.setFaults("images", faults) },
		Imported: n.kubelet.ImagesCame, Metrics: n.metrics, Log: n.log.With("part", "images"),
	}
	if n.host != nil {
		cfg.Runtime = n.host
	} else {
		socket := strings.TrimPrefix(n.cfg.ContainerRuntimeEndpoint, "unix://")
		cfg.Unused = imagedir.Unused{
			Message: "not imported: only the private containerd takes archives, and this node uses another runtime",
			Hint:    "import it yourself, with containerd by: ctr --address " + socket + " --namespace k8s.io images import",
		}
	}
	n.archives = imagedir.New(cfg)
}

func (n *node) reportArchives() []control.Image {
	all := []control.Image{}
	for _, a := range n.archives.Archives() {
		all = append(all, control.Image{File: a.File, State: string(a.State), Names: append([]string{}, a.Images...)})
	}
	return all
}

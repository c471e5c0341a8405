package clusternode

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/kubelet/credentialconfig"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
	"github.com/holdfast-dev/holdfast/internal/manifesturl"
)

// wireSources makes what reads static pods. Without a folder, no pod comes from one.
func (n *Node) wireSources() (err error) {
	k := n.cfg.Kubelet
	parser := manifest.New()
	if k.StaticPodPath == "" {
		n.kubelet.SetManifests(nil)
	} else {
		n.manifests = manifestdir.New(manifestdir.Config{
			Dir: k.StaticPodPath, Period: k.FileCheckFrequency.Duration, StateFile: filepath.Join(n.cfg.Root, stateFolder, "manifests.json"),
			Parser: parser, Check: n.kubelet.CheckManifest, Log: n.log.With("part", "manifests"), Metrics: n.metrics,
			Publish: func(_ context.Context, set manifestdir.Set) {
				if set.Known {
					n.kubelet.SetManifests(set.Documents)
				}
			},
		})
	}
	if k.StaticPodURL == "" {
		return nil
	}
	n.url, err = manifesturl.New(manifesturl.Config{
		Source: manifesturl.Source{URL: k.StaticPodURL, Headers: k.StaticPodURLHeader, Period: k.HTTPCheckFrequency},
		Node:   n.cfg.Name, StateFile: filepath.Join(n.cfg.Root, stateFolder, "manifest-url.json"),
		Parser: parser, Check: n.kubelet.CheckURLManifest, Log: n.log.With("part", "manifest URL"), Metrics: n.metrics,
		Publish: func(_ context.Context, set manifesturl.Set) {
			if set.Known {
				n.kubelet.SetURLManifests(set.Documents)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("staticPodURL: %w", err)
	}
	return nil
}

// providers are the programs that know credentials of images; nil: there are none.
func providers(cfg Config) (*credentialconfig.Config, error) {
	const file, folder = "--image-credential-provider-config", "--image-credential-provider-bin-dir"
	switch {
	case cfg.ProviderConfig == "" && cfg.ProviderBinDir == "":
		return nil, nil //nolint:nilnil // there are none
	case cfg.ProviderConfig == "" || cfg.ProviderBinDir == "":
		return nil, fmt.Errorf("%s and %s belong together: give both or none", file, folder)
	}
	all, err := credentialconfig.Load(cfg.ProviderConfig, cfg.ProviderBinDir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

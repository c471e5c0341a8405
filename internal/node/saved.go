package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/instance"
)

// savedVersion is the format of state/node.json; docs/formats.md describes it.
const savedVersion = 1

// saved is what the next start, and commands about a node that does not run,
// need to know of the last one.
type saved struct {
	Version int `json:"version"`
	Config      // with the ports that were in use
}

func savedPath(in *instance.Instance) string { return in.Path("state", "node.json") }

// loadSaved returns what the last start saved; nothing if there was none.
func loadSaved(in *instance.Instance) (Config, error) {
	path := savedPath(in)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	if err != nil {
		return Config{}, err
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return Config{}, fmt.Errorf("%s is damaged: %w (remove it; the next start writes it anew)", path, err)
	}
	if s.Version > savedVersion {
		return Config{}, fmt.Errorf("%s has format %d and this program reads up to %d: %w", path, s.Version, savedVersion, instance.ErrNewer)
	}
	return s.Config, nil
}

// save remembers cfg for the next start.
func save(in *instance.Instance, cfg Config) error {
	data, err := json.MarshalIndent(saved{savedVersion, cfg}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(savedPath(in), append(data, '\n'), 0o600)
}

// Differences tells which of the settings cfg the instance was not last started
// with. A port that may be any is always the same.
func Differences(in *instance.Instance, cfg Config) ([]string, error) {
	last, err := loadSaved(in)
	if err != nil || last.RootDir == "" {
		return nil, err // the start did not get far enough to save any
	}
	var out []string
	for _, s := range []struct{ name, last, now string }{
		{"manifestDir", last.ManifestDir, cfg.ManifestDir},
		{"manifestURL", last.ManifestURL.Address(), cfg.ManifestURL.Address()},
		{"nodeName", last.NodeName, cfg.NodeName},
		{"bindAddress", strings.Join(last.BindAddress, ","), strings.Join(cfg.BindAddress, ",")},
		{"apiNames", strings.Join(last.APINames, ","), strings.Join(cfg.APINames, ",")},
		{"containerRuntimeEndpoint", last.ContainerRuntimeEndpoint, cfg.ContainerRuntimeEndpoint},
		{"imageCredentialProviderConfig", last.ImageCredentialProviderConfig, cfg.ImageCredentialProviderConfig},
		{"imageCredentialProviderBinDir", last.ImageCredentialProviderBinDir, cfg.ImageCredentialProviderBinDir},
		{"podCIDR", last.PodCIDR, cfg.PodCIDR},
	} {
		if s.last != s.now {
			out = append(out, fmt.Sprintf("%s %q, not %q", s.name, s.last, s.now))
		}
	}
	for _, p := range []struct {
		name      string
		last, now *int
	}{{"apiPort", last.APIPort, cfg.APIPort}, {"kubeletPort", last.KubeletPort, cfg.KubeletPort}} {
		if p.last != nil && p.now != nil && *p.now != 0 && *p.last != *p.now {
			out = append(out, fmt.Sprintf("%s %d, not %d", p.name, *p.last, *p.now))
		}
	}
	if !reflect.DeepEqual(last.Kubelet, cfg.Kubelet) {
		out = append(out, "other settings of the section kubelet")
	}
	if last.ManifestURL.Address() == cfg.ManifestURL.Address() && !last.ManifestURL.Equal(cfg.ManifestURL) {
		out = append(out, "other settings of the section manifestURL")
	}
	if !reflect.DeepEqual(last.Images, cfg.Images) {
		out = append(out, "other settings of the section images")
	}
	return out, nil
}

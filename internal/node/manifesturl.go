package node

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifesturl"
)

// urlFields are upstream's fields for the source of pods "http", and what says
// the same here.
var urlFields = map[string]string{
	"staticPodURL": "manifestURL.url", "staticPodURLHeader": "manifestURL.headers", "httpCheckFrequency": "manifestURL.period",
}

// checkManifestURL refuses, with the line, what the section "manifestURL" cannot
// hold.
func checkManifestURL(section *yamlv3.Node) []error {
	if section.Tag == "!!null" {
		return nil
	}
	if section.Kind != yamlv3.MappingNode {
		return []error{fmt.Errorf("line %d: manifestURL holds no fields (it begins with \"url:\")", section.Line)}
	}
	fields := jsonFields(reflect.TypeFor[manifesturl.Source]())
	return checkFields(section, "manifestURL.", func(name string, value *yamlv3.Node) error {
		if !slices.Contains(fields, name) {
			return fmt.Errorf("unknown field \"manifestURL.%s\" (there are %s)", name, strings.Join(fields, ", "))
		}
		return decodeField[manifesturl.Source]("manifestURL", name, value)
	})
}

// prepareManifestURL makes what asks the manifest URL, if there is one.
func (n *node) prepareManifestURL(parser *manifest.Parser) (err error) {
	if !n.cfg.ManifestURL.IsSet() {
		return nil
	}
	n.manifestURL, err = manifesturl.New(manifesturl.Config{
		Source: n.cfg.ManifestURL, Node: n.cfg.NodeName, StateFile: n.in.Path("state", "manifest-url.json"),
		Parser: parser, Check: n.kubelet.CheckURLManifest, Log: n.log.With("part", partManifestURL), Metrics: n.metrics, Publish: n.publishURL,
	})
	return err
}

// publishURL passes on what the manifest URL says.
func (n *node) publishURL(_ context.Context, set manifesturl.Set) {
	n.setFaults("manifest URL", set.Faults)
	if set.Known {
		n.kubelet.SetURLManifests(set.Documents)
	}
	select {
	case n.readURL <- set.Known:
	default: // it was read before
	}
}

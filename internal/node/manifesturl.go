package node

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
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
		Source: n.cfg.ManifestURL, Node: n.cfg.NodeName, StateFile: urlState(n.in),
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

// urlState is where the last good answer of the manifest URL is kept.
func urlState(in *instance.Instance) string { return in.Path("state", "manifest-url.json") }

// urlSource tells about the manifest URL.
func urlSource(node string, s manifesturl.State) control.Source {
	answered := s.LastGood
	if s.Restored {
		answered = time.Time{} // in an earlier run
	}
	return control.Source{
		Name: staticpod.SourceHTTP, Place: s.Address, State: sourceState(answered, s.Failed, s.Known), LastGood: s.LastGood, Message: s.Failed, Since: s.Since,
		Objects: sourceObjects(s.Documents, s.Kept, node), Faults: reportFaults(s.Faults),
	}
}

// offlineURL tells what the disk knows of the manifest URL of a node that no
// process runs.
func offlineURL(in *instance.Instance, url manifesturl.Source, node string) []control.Source {
	if !url.IsSet() {
		return nil
	}
	saved, err := manifesturl.Saved(urlState(in), manifest.New())
	source := urlSource(node, saved)
	source.Place, source.Message = url.Address(), "no process runs this node"
	if err != nil {
		source.Message = err.Error()
	}
	return []control.Source{source}
}

package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
)

// sources tells about every source of pods, in the order in which they win.
func (n *node) sources() []control.Source {
	return []control.Source{
		folderSource(n.cfg.ManifestDir, n.cfg.NodeName, n.manifests.State()),
		n.apiSource(),
	}
}

// folderSource tells about the manifest folder.
func folderSource(dir, node string, s manifestdir.State) control.Source {
	source := control.Source{
		Name: staticpod.SourceFile, Place: dir, State: control.SourceGood, LastGood: s.LastGood, Message: s.Failed, Since: s.Since,
		Objects: sourceObjects(s.Documents, s.Kept, node), Faults: reportFaults(s.Faults),
		Ignored: ignoredFiles(s.Ignored),
	}
	switch {
	case !s.LastGood.IsZero() && s.Failed != "":
		source.State = control.SourceFailing
	case !s.LastGood.IsZero():
	case s.Known:
		source.State = control.SourceRestored
	default:
		source.State = control.SourceSilent
	}
	return source
}

// ignoredFiles says why files and folders are no manifests.
func ignoredFiles(names []string) []control.IgnoredFile {
	files := make([]control.IgnoredFile, len(names))
	for i, name := range names {
		files[i] = control.IgnoredFile{File: name, Reason: "its name is not that of a manifest: those end in .yaml, .yml or .json"}
		if strings.HasSuffix(name, "/") {
			files[i].Reason = "nested folders are not read here"
		}
	}
	return files
}

// sourceObjects lists documents that are in force.
func sourceObjects(docs []manifest.Document, kept []manifest.Key, node string) []control.SourceObject {
	objects := make([]control.SourceObject, len(docs))
	for i, d := range docs {
		objects[i] = control.SourceObject{
			Kind: d.Key.Kind, Namespace: d.Key.Namespace, Name: d.Key.Name,
			Place: fmt.Sprintf("%s:%d", d.File, d.Line), Kept: slices.Contains(kept, d.Key),
		}
		if _, ok := d.Object.(*v1.Pod); ok {
			objects[i].Pod = staticpod.Name(d.Key.Name, node)
		}
	}
	return objects
}

// apiSource tells about the API's pods that are bound to this node.
func (n *node) apiSource() control.Source {
	source := control.Source{
		Name: staticpod.SourceAPI, Place: "https://" + n.api.Address(), State: control.SourceGood,
		Objects: []control.SourceObject{}, Faults: []control.Fault{},
	}
	for _, pod := range n.kubelet.Pods() {
		if staticpod.Source(pod) == staticpod.SourceAPI {
			source.Objects = append(source.Objects, control.SourceObject{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	slices.SortFunc(source.Objects, func(a, b control.SourceObject) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, f := range n.kubelet.APIFaults() {
		source.State, source.Message, source.Since = control.SourceFailing, f.Message, f.Since
	}
	return source
}

// reportFaults makes faults of manifests lines of a report.
func reportFaults(faults []manifest.Fault) []control.Fault {
	shown := make([]control.Fault, len(faults))
	for i, f := range faults {
		hint := f.Hint
		if f.Suggestion != "" {
			hint = strings.TrimSuffix(fmt.Sprintf("did you mean %q? %s", f.Suggestion, f.Hint), " ")
		}
		shown[i] = control.Fault{
			File: f.File, Line: f.Line, Reason: string(f.Reason), Object: f.Object(), Field: f.Field, Message: f.Message, Hint: hint, Since: f.Since,
		}
	}
	return shown
}

// offlineSources tells what the disk knows of the sources of a node that no
// process runs.
func offlineSources(in *instance.Instance, dir, node string) []control.Source {
	docs, err := manifestdir.Saved(manifestState(in), manifest.New())
	source := folderSource(dir, node, manifestdir.State{Set: manifestdir.Set{Documents: docs, Known: docs != nil}})
	source.Message = "no process runs this node"
	if err != nil {
		source.Message = err.Error()
	}
	return []control.Source{source}
}

// manifestState is where the documents in force are remembered.
func manifestState(in *instance.Instance) string { return in.Path("state", "manifests.json") }

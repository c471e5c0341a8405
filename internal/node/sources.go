package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsource"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
)

// sources tells about every source of pods, in the order in which they win.
func (n *node) sources() []control.Source {
	all := []control.Source{folderSource(n.cfg.ManifestDir, n.cfg.NodeName, n.manifests.State())}
	if n.manifestURL != nil {
		all = append(all, urlSource(n.cfg.NodeName, n.manifestURL.State()))
	}
	return append(all, apiSource(n.api.Address(), n.kubelet.Pods(), n.kubelet.APISource()))
}

// folderSource tells about the manifest folder.
func folderSource(dir, node string, s manifestdir.State) control.Source {
	source := control.Source{
		Name: staticpod.SourceFile, Place: dir, State: sourceState(s.LastGood, s.Failed, s.Known), LastGood: s.LastGood, Message: s.Failed, Since: s.Since,
		Objects: sourceObjects(s.Documents, s.Kept, node), Faults: reportFaults(s.Faults),
		Ignored: ignoredFiles(s.Ignored),
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
func apiSource(address string, pods []*v1.Pod, s podsource.State) control.Source {
	source := control.Source{
		Name: staticpod.SourceAPI, Place: "https://" + address, State: sourceState(s.LastGood, s.Failed, s.Restored),
		LastGood: s.LastGood, Message: s.Failed, Since: s.Since,
		Objects: []control.SourceObject{}, Faults: []control.Fault{},
	}
	if source.State == control.SourceRestored && !s.RestoredFrom.IsZero() {
		source.Message = fmt.Sprintf("pods run from the checkpoint of %s: %s", s.RestoredFrom.UTC().Format(time.RFC3339), cmp.Or(s.Failed, "no answer yet"))
	}
	for _, pod := range pods {
		if staticpod.Source(pod) == staticpod.SourceAPI {
			source.Objects = append(source.Objects, control.SourceObject{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	slices.SortFunc(source.Objects, func(a, b control.SourceObject) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return source
}

// addSourceFaults adds to each source what the kubelet found wrong with what it
// delivers: pods that are left out, since another one has their name.
func addSourceFaults(sources []control.Source, faults []fault.Fault) []control.Source {
	for i := range sources {
		for _, f := range faults {
			if f.Source == sources[i].Name {
				leaveOut(sources[i].Objects, f.Object)
				sources[i].Faults = append(sources[i].Faults, control.Fault{
					Reason: string(manifest.ReasonDuplicate), Object: f.Object, Message: f.Message, Since: f.Since,
				})
			}
		}
	}
	return sources
}

// leaveOut marks the static pod that a fault is of. Pods of the API have no
// such name: they run beside the one they clash with.
func leaveOut(objects []control.SourceObject, pod string) {
	for i, o := range objects {
		if o.Pod != "" && pod == "Pod "+o.Namespace+"/"+o.Pod {
			objects[i].LeftOut = true
		}
	}
}

// sourceState says how a source is that last answered in this run at lastGood,
// if it did, and fails now, if it does; known is whether an earlier run
// remembers what it said.
func sourceState(lastGood time.Time, failed string, known bool) control.SourceState {
	switch {
	case !lastGood.IsZero() && failed != "":
		return control.SourceFailing
	case !lastGood.IsZero():
		return control.SourceGood
	case known:
		return control.SourceRestored
	default:
		return control.SourceSilent
	}
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

// publish passes on what the manifest folder says.
func (n *node) publish(_ context.Context, set manifestdir.Set) {
	n.setFaults("manifests", set.Faults)
	if set.Known {
		n.kubelet.SetManifests(set.Documents)
		n.objects.Update(set.Documents)
	}
	select {
	case n.read <- set.Known:
	default: // it was read before
	}
}

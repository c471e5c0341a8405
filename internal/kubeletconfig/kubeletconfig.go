// Package kubeletconfig reads what configures a kubelet: upstream's
// KubeletConfiguration (kubelet.config.k8s.io/v1beta1) from a file and a folder of
// drop-ins, and upstream's flags.
//
// Every field of that type has a rule: it is honoured, or refused where it is set
// to anything but its default. None is accepted and ignored. What wins is, in this
// order: a flag, the last drop-in that sets the field, the file, the default.
//
// The package reads the files that it is told to, and no more. It has no state.
package kubeletconfig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/tlsoptions"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// Kind heads a configuration file, with the API version of v1beta1.
const Kind = "KubeletConfiguration"

// Sources say where a configuration comes from. Each may be missing.
type Sources struct {
	File  string // of --config; empty: none
	Dir   string // of --config-dir: drop-ins, *.conf in it and in its folders, in the order of their paths
	Flags *Flags // nil: none
}

// Loaded is a configuration, and where its fields were set.
type Loaded struct {
	// Kubelet has a value in every field that has a default.
	Kubelet v1beta1.KubeletConfiguration

	layers []layer // later ones win
	flags  *Flags
}

// A layer is one file.
type layer struct {
	file     string
	settings manifest.Settings
}

// Place says where a field such as `authentication.x509.clientCAFile` was set: as
// FILE:LINE or --FLAG; empty: nowhere, it has its default.
func (l *Loaded) Place(field string) string {
	if flag := l.flags.setting(field); flag != "" {
		return "--" + flag
	}
	for _, layer := range slices.Backward(l.layers) {
		if layer.settings.Has(field) {
			return fmt.Sprintf("%s:%d", layer.file, layer.settings.Line(field))
		}
	}
	return ""
}

// Load reads a configuration, completes it with upstream's defaults and checks it
// by the rules. The error has everything that is wrong, one line for each.
func Load(s Sources) (*Loaded, error) {
	l := &Loaded{flags: s.Flags}
	written := map[string]any{}
	var errs []error
	if s.File != "" {
		err := l.add(s.File, &written)
		if err == nil {
			// As upstream has it, defaults that depend on other fields are set by
			// the file, before the drop-ins.
			err = complete(&written, true)
		}
		errs = append(errs, err)
	}
	dropIns, err := dropIns(s.Dir)
	errs = append(errs, err)
	for _, file := range dropIns {
		errs = append(errs, l.add(file, &written))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := complete(&written, false); err != nil {
		return nil, err
	}
	s.Flags.apply(written)
	if err := convert(written, &l.Kubelet); err != nil {
		return nil, err
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	return l, nil
}

// Warnings says what was given and has no effect or should not be, one line for each.
func (l *Loaded) Warnings() []string {
	_, notes, _ := tlsoptions.Parse(tlsoptions.Of(&l.Kubelet)) // Load has validated it
	return append(l.flags.Warnings(), notes...)
}

// add reads a file and merges it into what is written so far.
func (l *Loaded) add(file string, written *map[string]any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("configuration of the kubelet: %w", err)
	}
	settings, err := read(file, data)
	if err != nil {
		return err
	}
	patch, err := generic(settings.Written)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	l.layers = append(l.layers, layer{file, settings})
	*written = merged(*written, patch)
	return nil
}

// read reads the content of one file.
func read(file string, data []byte) (manifest.Settings, error) {
	settings, faults := manifest.ReadSettings[v1beta1.KubeletConfiguration](file, data)
	var errs []error
	for _, f := range faults {
		errs = append(errs, errors.New(f.String()))
	}
	if len(errs) > 0 {
		return settings, errors.Join(errs...)
	}
	if v := v1beta1.SchemeGroupVersion.String(); settings.APIVersion != v || settings.Kind != Kind {
		return settings, fmt.Errorf("%s:%d: apiVersion is %q and kind is %q: write apiVersion: %s and kind: %s",
			file, settings.Line("kind"), settings.APIVersion, settings.Kind, v, Kind)
	}
	return settings, nil
}

// complete sets the defaults of what is written, and in first, the file, those of
// the amounts at which pods are evicted.
func complete(written *map[string]any, first bool) error {
	var k v1beta1.KubeletConfiguration
	if err := convert(*written, &k); err != nil {
		return err
	}
	SetDefaults(&k)
	if first || k.EvictionHard == nil {
		k.EvictionHard = hardEvictions(&k)
	}
	var out map[string]any
	if err := convert(k, &out); err != nil {
		return err
	}
	*written = out
	return nil
}

// dropIns returns the files of a folder that count, in the order of their paths.
func dropIns(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("drop-ins of --config-dir: %w", err)
	}
	return files, nil
}

// merged returns a document with a patch applied to it as RFC 7396 has it: what
// is null in the patch goes, mappings are merged, all else is replaced.
func merged(document, patch map[string]any) map[string]any {
	out := make(map[string]any, len(document)+len(patch))
	maps.Copy(out, document)
	for name, value := range patch {
		switch change := value.(type) {
		case nil:
			delete(out, name)
		case map[string]any:
			before, _ := out[name].(map[string]any)
			out[name] = merged(before, change)
		default:
			out[name] = value
		}
	}
	return out
}

// convert brings a configuration from one form to another, by way of JSON.
func convert(from, to any) error {
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		return fmt.Errorf("configuration of the kubelet: %w", err)
	}
	return nil
}

// generic reads JSON into what encoding/json makes of it, with exact numbers.
func generic(data []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var out map[string]any
	err := dec.Decode(&out)
	return out, err
}

// check returns what is wrong by the rules of fields and by upstream's validation,
// each error with the field's place.
func (l *Loaded) check() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s%s: %s", prefix(l.Place(field)), field, fmt.Sprintf(format, args...)))
	}
	if err := checkRules(&l.Kubelet, wrong); err != nil {
		return err
	}
	checkGates(l.Kubelet.FeatureGates, wrong)
	validate(&l.Kubelet, wrong)
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// prefix returns how a message about a place begins.
func prefix(place string) string {
	if place == "" {
		return ""
	}
	return place + ": "
}

// lookup returns the value at a path of a document, and whether there is one.
func lookup(document map[string]any, field string) (any, bool) {
	var at any = document
	for step := range strings.SplitSeq(field, ".") {
		mapping, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = mapping[step]; !ok {
			return nil, false
		}
	}
	return at, true
}

// store sets the value at a path of a document.
func store(document map[string]any, field string, value any) {
	steps := strings.Split(field, ".")
	for _, step := range steps[:len(steps)-1] {
		below, ok := document[step].(map[string]any)
		if !ok {
			below = map[string]any{}
			document[step] = below
		}
		document = below
	}
	document[steps[len(steps)-1]] = value
}

package kubeletconfig

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/kubelet/config/v1beta1"
)

// Flags are those of upstream's kubelet: those that name a field of the
// configuration, and those that have no field. The zero value is ready for AddTo.
// They are not for concurrent use.
type Flags struct {
	ConfigFile string // --config; empty: there is none
	ConfigDir  string // --config-dir; empty: there is none

	Kubeconfig          string // how the API is reached, and as whom
	BootstrapKubeconfig string // by which a client certificate is asked for; empty: none is
	CertDir             string // of certificates; empty: the folder pki of RootDir
	RootDir             string // of pods' volumes and of what the kubelet keeps

	HostnameOverride string // of the Node; empty: the machine's
	NodeIP           string // one address, or two of two families with a comma; empty: the route's
	CloudProvider    string // empty or "external"
	NodeLabels       map[string]string

	CredentialProviderConfig string // file of the programs that know credentials of images
	CredentialProviderBinDir string // where those programs are

	fields map[string]fieldFlag // by field, those that were given
	others []otherFlag
}

// A fieldFlag is a flag that was given for a field.
type fieldFlag struct {
	name  string
	value any // as encoding/json would read it
}

// An otherFlag is one that has no field and no effect.
type otherFlag struct {
	name, value string
}

// unusedFlags are those flags without a field that cannot be set, by the one value
// that says nothing. Those without a reason come from a library, and are taken
// with a warning.
var unusedFlags = map[string]struct {
	only, instead string
	boolean       bool
}{
	"lock-file":                             {instead: "the folder of --root-dir has a lock of its own: leave it out"},
	"exit-on-lock-contention":               {only: "false", boolean: true, instead: "leave it out: the folder of --root-dir has a lock of its own"},
	"minimum-container-ttl-duration":        {only: "0s", instead: "use evictionHard or evictionSoft"},
	"maximum-dead-containers-per-container": {only: "1", instead: "use evictionHard or evictionSoft"},
	"maximum-dead-containers":               {only: "-1", instead: "use evictionHard or evictionSoft"},
	"experimental-mounter-path":             {instead: "leave it out: mounts are made without another program"},
	"experimental-allocatable-ignore-eviction": {
		only: "false", boolean: true, instead: "leave it out: what is allocatable is less by evictionHard",
	},
	"runtime-cgroups":       {instead: "leave it out: what the runtime uses is not told apart"},
	"housekeeping-interval": {only: "10s"},
}

// AddTo adds the flags to a command's. Those that stand for a field of the
// configuration say so.
func (f *Flags) AddTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.ConfigFile, "config", f.ConfigFile, "file with a KubeletConfiguration")
	fs.StringVar(&f.ConfigDir, "config-dir", f.ConfigDir, "folder of files *.conf, whose fields take the place of the file's")
	fs.StringVar(&f.Kubeconfig, "kubeconfig", f.Kubeconfig, "how the cluster's API is reached")
	fs.StringVar(&f.BootstrapKubeconfig, "bootstrap-kubeconfig", f.BootstrapKubeconfig, "how a client certificate is asked for while there is no file of --kubeconfig")
	fs.StringVar(&f.CertDir, "cert-dir", f.CertDir, "folder of the node's certificates (default pki in that of --root-dir)")
	fs.StringVar(&f.RootDir, "root-dir", "/var/lib/kubelet", "folder of pods' volumes and of the node's state")
	fs.StringVar(&f.HostnameOverride, "hostname-override", f.HostnameOverride, "name of the Node (default the machine's)")
	fs.StringVar(&f.NodeIP, "node-ip", f.NodeIP, "address of the Node, or two of two families with a comma (default that of the route)")
	fs.StringVar(&f.CloudProvider, "cloud-provider", f.CloudProvider, "external where a cloud controller completes the Node")
	fs.StringToStringVar(&f.NodeLabels, "node-labels", f.NodeLabels, "labels that the Node gets")
	fs.StringVar(&f.CredentialProviderConfig, "image-credential-provider-config", f.CredentialProviderConfig, "file, or folder of files, that say which programs know credentials of images")
	fs.StringVar(&f.CredentialProviderBinDir, "image-credential-provider-bin-dir", f.CredentialProviderBinDir, "folder of those programs")
	for _, r := range rules {
		if r.flag != "" {
			f.addField(fs, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unusedFlags)) {
		added := fs.VarPF(&unusedValue{flags: f, name: name}, name, "", "has no effect")
		added.Hidden = true
		if unusedFlags[name].boolean {
			added.NoOptDefVal = "true"
		}
	}
}

// Sources returns where the configuration comes from, once the flags were parsed.
func (f *Flags) Sources() Sources {
	return Sources{File: f.ConfigFile, Dir: f.ConfigDir, Flags: f}
}

// addField adds the flag of a field.
func (f *Flags) addField(fs *pflag.FlagSet, r rule) {
	value := &fieldValue{flags: f, rule: r, is: typeOf(r.field)}
	shorthand := ""
	if r.flag == "v" {
		shorthand = "v"
	}
	added := fs.VarPF(value, r.flag, shorthand, "field "+r.field+" of the configuration")
	added.Hidden = r.instead != ""
	if value.is.Kind() == reflect.Bool {
		added.NoOptDefVal = "true"
	}
}

// setting returns the name of the flag that was given for a field, or for one
// around it; empty: none was.
func (f *Flags) setting(field string) string {
	if f == nil {
		return ""
	}
	for name, given := range f.fields {
		if field == name || strings.HasPrefix(field, name+".") || strings.HasPrefix(field, name+"[") {
			return given.name
		}
	}
	return ""
}

// apply sets in a document what was given by flags. As upstream has it, a list or
// a mapping takes the place of the file's, but gates are added to it.
func (f *Flags) apply(document map[string]any) {
	if f == nil {
		return
	}
	for name, given := range f.fields {
		value := given.value
		if name == "featureGates" {
			if before, ok := document[name].(map[string]any); ok {
				value = merged(before, value.(map[string]any))
			}
		}
		store(document, name, value)
	}
}

// Warnings says which flags were given and have no effect, one line for each.
func (f *Flags) Warnings() []string {
	if f == nil {
		return nil
	}
	var warnings []string
	for _, o := range f.others {
		if unusedFlags[o.name].instead == "" {
			warnings = append(warnings, fmt.Sprintf("--%s has no effect: upstream has it from a library that is not used here", o.name))
		}
	}
	return warnings
}

// A fieldValue is the flag of a field, as pflag has it.
type fieldValue struct {
	flags *Flags
	rule  rule
	is    reflect.Type
	text  string // as given, for String
	given bool
}

func (v *fieldValue) String() string { return v.text }

// Type names what is wanted, for the help.
func (v *fieldValue) Type() string { return typeName(v.is) }

// Set takes a value. Lists and mappings grow when the flag is given again.
func (v *fieldValue) Set(text string) error {
	value, err := parse(v.is, v.rule, text)
	if err != nil {
		return err
	}
	if v.given {
		value = joined(v.flags.fields[v.rule.field].value, value)
	}
	if v.flags.fields == nil {
		v.flags.fields = map[string]fieldFlag{}
	}
	v.flags.fields[v.rule.field] = fieldFlag{name: v.rule.flag, value: value}
	v.text, v.given = text, true
	if v.rule.field == "staticPodURLHeader" { // may hold a password
		v.text = "<masked>"
	}
	return nil
}

// joined returns two values of one flag as one: the later one but for lists and
// mappings.
func joined(before, after any) any {
	switch after := after.(type) {
	case []any:
		return append(slices.Clone(before.([]any)), after...)
	case map[string]any:
		return merged(before.(map[string]any), after)
	default:
		return after
	}
}

// An unusedValue is a flag of unusedFlags, as pflag has it.
type unusedValue struct {
	flags      *Flags
	name, text string
}

func (v *unusedValue) String() string { return v.text }

// Type names what is wanted, for the help.
func (v *unusedValue) Type() string {
	if unusedFlags[v.name].boolean {
		return "bool"
	}
	return "string"
}

// Set takes the value that says nothing.
func (v *unusedValue) Set(text string) error {
	u := unusedFlags[v.name]
	if u.instead != "" && text != u.only {
		return fmt.Errorf("not possible: %s", u.instead)
	}
	v.flags.others = append(v.flags.others, otherFlag{v.name, text})
	v.text = text
	return nil
}

// typeOf returns the type of a field, below pointers. It panics if the type of the
// configuration has no such field: a rule names one.
func typeOf(field string) reflect.Type {
	t := reflect.TypeFor[v1beta1.KubeletConfiguration]()
	for step := range strings.SplitSeq(field, ".") {
		var ok bool
		if t, ok = fieldType(t, step); !ok {
			panic("kubeletconfig: no field " + field)
		}
	}
	return t
}

// fieldType returns the type of one field of a struct by its name in JSON, below
// pointers, and whether there is one.
func fieldType(t reflect.Type, name string) (reflect.Type, bool) {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		is := f.Type
		for is.Kind() == reflect.Pointer {
			is = is.Elem()
		}
		if tag == name {
			return is, true
		}
		if tag == "" && f.Anonymous {
			if within, ok := fieldType(is, name); ok {
				return within, true
			}
		}
	}
	return nil, false
}

package kubeletconfig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// write writes a file of a test and returns its path.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load loads a configuration of fields, which head is put before, and of flags.
func load(t *testing.T, fields string, args ...string) (*Loaded, error) {
	t.Helper()
	flags, err := parsed(args...)
	if err != nil {
		return nil, err
	}
	s := Sources{Flags: flags}
	if fields != "" {
		s.File = write(t, filepath.Join(t.TempDir(), "config.yaml"), head+fields)
	}
	return Load(s)
}

// parsed returns flags after a command line.
func parsed(args ...string) (*Flags, error) {
	flags := new(Flags)
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.AddTo(fs)
	return flags, fs.Parse(args)
}

// TestEveryFieldHasARule holds that nothing of upstream's type is forgotten, that
// nothing is named that is not there, and that each flag stands for one field.
func TestEveryFieldHasARule(t *testing.T) {
	used := map[string]bool{}
	var walk func(of reflect.Type, above string)
	walk = func(of reflect.Type, above string) {
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			is := f.Type
			for is.Kind() == reflect.Pointer {
				is = is.Elem()
			}
			if name == "" { // inline: what all objects have
				if f.Name != "TypeMeta" {
					walk(is, above)
				}
				continue
			}
			if r, ok := ruleOf(above + name); ok {
				used[r.field] = true
				continue
			}
			if is.Kind() != reflect.Struct {
				t.Errorf("%s%s has no rule: say in rules that it is honoured, or why it cannot be set and what to do instead", above, name)
				continue
			}
			walk(is, above+name+".")
		}
	}
	walk(reflect.TypeFor[v1beta1.KubeletConfiguration](), "")
	flags := map[string]string{}
	for _, r := range rules {
		if !used[r.field] {
			t.Errorf("there is a rule for %s, and no such field", r.field)
		}
		if r.flag == "" {
			continue
		}
		if other := flags[r.flag]; other != "" {
			t.Errorf("--%s stands for %s and for %s", r.flag, other, r.field)
		}
		flags[r.flag] = r.field
		typeOf(r.field) // panics if there is none
	}
}

// kubeadm is the file that kubeadm 1.37 writes for a node.
const kubeadm = `apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`

// TestKubeadm holds that a node which kubeadm made starts, and that zero is the
// default in its file.
func TestKubeadm(t *testing.T) {
	flags, err := parsed("--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule", "--hostname-override=n1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(Sources{File: write(t, filepath.Join(t.TempDir(), "config.yaml"), kubeadm), Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.CgroupDriver = "systemd"
	want.ClusterDNS, want.ClusterDomain = []string{"10.96.0.10"}, "cluster.local"
	want.ContainerRuntimeEndpoint = "unix:///var/run/containerd/containerd.sock"
	want.StaticPodPath = "/etc/kubernetes/manifests"
	want.RotateCertificates = true
	want.Authentication.X509.ClientCAFile = "/etc/kubernetes/pki/ca.crt"
	want.ResolverConfig = new("/run/systemd/resolve/resolv.conf")
	want.RegisterWithTaints = []v1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: v1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(asJSON(t, l.Kubelet), asJSON(t, want)); diff != "" {
		t.Errorf("got (-), want (+):\n%s", diff)
	}
	if flags.HostnameOverride != "n1" {
		t.Errorf("got name %q, want n1", flags.HostnameOverride)
	}
}

func asJSON(t *testing.T, k v1beta1.KubeletConfiguration) map[string]any {
	t.Helper()
	data, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestWhatWins holds the order of the sources, and that the place of each field is
// known.
func TestWhatWins(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "config.yaml"), head+`maxPods: 10
podsPerCore: 1
clusterDNS: [10.0.0.1]
featureGates: {GracefulNodeShutdown: true}
evictionHard: {memory.available: 1Gi, nodefs.available: 5%}
kubeReserved: {cpu: 100m, memory: 1Gi}
clusterDomain: one
`)
	first := write(t, filepath.Join(dir, "conf.d", "10-first.conf"), head+"podsPerCore: 2\nport: 1000\nclusterDNS: [10.0.0.2]\nkubeReserved: {memory: 2Gi}\n")
	write(t, filepath.Join(dir, "conf.d", "20-more", "second.conf"), head+"\nport: 2000\nclusterDomain: null\n")
	write(t, filepath.Join(dir, "conf.d", "30-not.yaml"), "nonsense")
	flags, err := parsed("--port=3000", "--kube-reserved=cpu=1", "--feature-gates=KubeletCrashLoopBackOffMax=true")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(Sources{File: file, Dir: filepath.Join(dir, "conf.d"), Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	k := l.Kubelet
	for what, c := range map[string]struct{ got, want any }{
		"maxPods of the file":            {k.MaxPods, int32(10)},
		"podsPerCore of the drop-in":     {k.PodsPerCore, int32(2)},
		"port of the flag":               {k.Port, int32(3000)},
		"a list is replaced":             {k.ClusterDNS, []string{"10.0.0.2"}},
		"a mapping of a flag replaces":   {k.KubeReserved, map[string]string{"cpu": "1"}},
		"gates are added":                {k.FeatureGates, map[string]bool{"GracefulNodeShutdown": true, "KubeletCrashLoopBackOffMax": true}},
		"amounts take the place of all":  {k.EvictionHard, map[string]string{"memory.available": "1Gi", "nodefs.available": "5%"}},
		"null in a drop-in takes away":   {k.ClusterDomain, ""},
		"place of maxPods":               {l.Place("maxPods"), file + ":3"},
		"place of podsPerCore":           {l.Place("podsPerCore"), first + ":3"},
		"place of port":                  {l.Place("port"), "--port"},
		"place of a gate of the file":    {l.Place("clusterDNS"), first + ":5"},
		"place of what has its default":  {l.Place("healthzPort"), ""},
		"place of a null":                {l.Place("clusterDomain"), file + ":9"},
		"a drop-in without such a field": {k.HealthzBindAddress, "127.0.0.1"},
	} {
		if diff := cmp.Diff(c.got, c.want); diff != "" {
			t.Errorf("%s: got (-), want (+):\n%s", what, diff)
		}
	}
}

// TestRefused holds the messages about what cannot be: each names the place, the
// field and what to do.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		fields string
		args   []string
		want   string
	}{
		"a policy":             {fields: "cpuManagerPolicy: static\n", want: `config.yaml:3: cpuManagerPolicy: "static" is not possible: leave it out`},
		"a policy by a flag":   {args: []string{"--cpu-manager-policy=static"}, want: `--cpu-manager-policy: cpuManagerPolicy: "static" is not possible: leave it out`},
		"a type without text":  {args: []string{"--reserved-memory=0:memory=1Gi"}, want: "not possible: leave it out"},
		"below another":        {fields: "memorySwap:\n  swapBehavior: LimitedSwap\n", want: `config.yaml:4: memorySwap.swapBehavior: "LimitedSwap" is not possible`},
		"all of one":           {fields: "tracing:\n  samplingRatePerMillion: 100\n", want: "config.yaml:3: tracing: "},
		"a gate":               {fields: "featureGates:\n  MemoryQoS: false\n", want: "config.yaml:4: featureGates.MemoryQoS: false is not possible"},
		"all gates":            {fields: "featureGates:\n  AllAlpha: true\n", want: "featureGates.AllAlpha: true is not possible"},
		"no gate":              {fields: "featureGates:\n  memoryqos: true\n", want: "remove it; did you mean MemoryQoS?"},
		"an unknown field":     {fields: "maxPod: 1\n", want: `config.yaml:3: maxPod: unknown field; did you mean "maxPods"?`},
		"a wrong type":         {fields: "maxPods: many\n", want: "config.yaml:3: maxPods: an integer is wanted"},
		"no length of time":    {fields: "syncFrequency: 10\n", want: "config.yaml:3: syncFrequency: a length of time is wanted"},
		"twice":                {fields: "maxPods: 1\nmaxPods: 2\n", want: "config.yaml:4: maxPods: duplicate key, first written at line 3"},
		"two documents":        {fields: "---\nmaxPods: 1\n", want: "a second document"},
		"another flag":         {args: []string{"--maximum-dead-containers=5"}, want: "use evictionHard or evictionSoft"},
		"a flag of no kind":    {args: []string{"--node-status-update-frequency=soon"}, want: "no length of time"},
		"an amount":            {args: []string{"--eviction-hard=memory.available=1Gi"}, want: `is not of the form name<value`},
		"a taint":              {args: []string{"--register-with-taints=a=b"}, want: "is no taint"},
		"an effect":            {args: []string{"--register-with-taints=a=b:Never"}, want: `--register-with-taints: registerWithTaints: effect "Never" of a is not known`},
		"a port":               {fields: "port: 70000\n", want: "config.yaml:3: port: 70000 must be from 1 to 65535"},
		"too few":              {fields: "containerLogMaxFiles: 1\n", want: "containerLogMaxFiles: 1 is too few: at least 2"},
		"too short":            {fields: "containerLogMonitorInterval: 1s\n", want: "containerLogMonitorInterval: 1s is too short: at least 3s"},
		"too long":             {fields: "cpuCFSQuotaPeriod: 2s\n", want: "cpuCFSQuotaPeriod: 2s is too long: at most 1s"},
		"negative":             {fields: "imageMinimumGCAge: -1s\n", want: "imageMinimumGCAge: -1s must not be negative"},
		"a mode":               {fields: "authorization: {mode: RBAC}\n", want: `authorization.mode: "RBAC" is not known: AlwaysAllow, Webhook`},
		"an address":           {fields: "clusterDNS: [dns]\n", want: `clusterDNS: "dns" is no address`},
		"a relative path":      {fields: "staticPodPath: manifests\n", want: `staticPodPath: "manifests" must be an absolute path`},
		"half of a pair":       {fields: "tlsCertFile: /a\n", want: "tlsCertFile: belongs together with tlsPrivateKeyFile"},
		"low over high":        {fields: "imageGCLowThresholdPercent: 90\n", want: "90 must be less than imageGCHighThresholdPercent, which is 85"},
		"pulls":                {fields: "maxParallelImagePulls: 3\nserializeImagePulls: true\n", want: "write serializeImagePulls: false"},
		"a shutdown":           {fields: "shutdownGracePeriodCriticalPods: 5s\n", want: "5s is a part of shutdownGracePeriod"},
		"a reservation":        {fields: "kubeReserved: {gpu: 1}\n", want: "kubeReserved.gpu"},
		"a reserved thing":     {fields: "kubeReserved: {gpu: \"1\"}\n", want: `kubeReserved: "gpu" cannot be reserved`},
		"an enforcement":       {fields: "enforceNodeAllocatable: [pods, kube-reserved]\n", want: `"kube-reserved" is not possible`},
		"user IDs":             {fields: "userNamespaces: {idsPerPod: 1000}\n", want: "1000 must be a multiple of 65536"},
		"a size":               {fields: "containerLogMaxSize: big\n", want: `containerLogMaxSize: "big" is no quantity of bytes`},
		"a strategy":           {fields: "configMapAndSecretChangeDetectionStrategy: Poll\n", want: "Get, Cache, Watch"},
		"a flag of a library":  {args: []string{"--housekeeping-interval=1s", "--port=0"}, want: "port: 0 must be from 1 to 65535"},
		"no true":              {args: []string{"--fail-swap-on=maybe"}, want: "neither true nor false"},
		"too large for a flag": {args: []string{"--max-pods=99999999999"}, want: "no integer of this size"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.fields, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want %q in it", err, c.want)
			}
		})
	}
	t.Run("all at once", func(t *testing.T) {
		_, err := load(t, "maxPods: -1\nport: -1\nrunOnce: true\n")
		if err == nil || strings.Count(err.Error(), "\n") != 2 {
			t.Errorf("got %v, want three lines", err)
		}
	})
	t.Run("of another kind", func(t *testing.T) {
		file := write(t, filepath.Join(t.TempDir(), "pod.yaml"), "apiVersion: v1\nkind: KubeletConfiguration\n")
		_, err := Load(Sources{File: file})
		if want := file + `:2: apiVersion is "v1"`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	})
}

// TestFlags holds the forms of upstream's flags.
func TestFlags(t *testing.T) {
	l, err := load(t, "", "--address=::", "--register-node=false", "--cluster-dns=10.0.0.1,10.0.0.2", "--cluster-dns", "10.0.0.3",
		"--eviction-hard=memory.available<1Gi,nodefs.available<5%", "--system-reserved=cpu=200m", "--system-reserved=memory=1Gi",
		"--manifest-url-header=A:1,A:2,B:x:y", "--node-status-update-frequency=90s", "--rotate-certificates",
		"--register-with-taints=a=b:NoSchedule,c:NoExecute", "-v", "4", "--seccomp-default", "--housekeeping-interval=5s", "--node-labels=a=b,c=d")
	if err != nil {
		t.Fatal(err)
	}
	k := l.Kubelet
	for what, c := range map[string]struct{ got, want any }{
		"address":      {k.Address, "::"},
		"false":        {*k.RegisterNode, false},
		"bare":         {k.RotateCertificates, true},
		"list":         {k.ClusterDNS, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}},
		"amounts":      {k.EvictionHard, map[string]string{"memory.available": "1Gi", "nodefs.available": "5%"}},
		"mapping":      {k.SystemReserved, map[string]string{"cpu": "200m", "memory": "1Gi"}},
		"headers":      {k.StaticPodURLHeader, map[string][]string{"A": {"1", "2"}, "B": {"x:y"}}},
		"duration":     {k.NodeStatusUpdateFrequency.Duration, 90 * time.Second},
		"taints":       {k.RegisterWithTaints, []v1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}, {Key: "c", Effect: "NoExecute"}}},
		"verbosity":    {int(k.Logging.Verbosity), 4},
		"seccomp":      {*k.SeccompDefault, true},
		"labels":       {l.flags.NodeLabels, map[string]string{"a": "b", "c": "d"}},
		"root":         {l.flags.RootDir, "/var/lib/kubelet"},
		"one warning":  {len(l.flags.Warnings()), 1},
		"its own name": {strings.Contains(l.flags.Warnings()[0], "--housekeeping-interval"), true},
	} {
		if diff := cmp.Diff(c.got, c.want); diff != "" {
			t.Errorf("%s: got (-), want (+):\n%s", what, diff)
		}
	}
}

// FuzzRead reads files that may be anything: what is taken must be taken again
// when it is written out.
func FuzzRead(f *testing.F) {
	f.Add([]byte(kubeadm))
	f.Add([]byte(head + "evictionHard: {memory.available: 1Gi}\n"))
	f.Add([]byte(`{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "logging": {"vmodule": [{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := read("config.yaml", data)
		if err != nil {
			return
		}
		var k v1beta1.KubeletConfiguration
		if err := json.Unmarshal(first.Written, &k); err != nil {
			t.Fatalf("was read, and is no configuration: %v", err)
		}
		if _, err := read("again.json", first.Written); err != nil {
			t.Fatalf("what was read is not read again: %v\n%s", err, first.Written)
		}
	})
}

// TestDefaultsAreUpstreams compares them with those that upstream's kubelet sets.
// Those of evictions it sets elsewhere.
func TestDefaultsAreUpstreams(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "upstream-defaults.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	is := Default()
	got := asJSON(t, is)
	for _, ours := range []string{"apiVersion", "kind", "evictionHard"} {
		delete(got, ours)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("ours (-), upstream's (+):\n%s", diff)
	}
}

// TestFlagsAreUpstreams compares the names of flags with those of upstream's
// kubelet, and what a flag is without a value. --version is the command's.
func TestFlagsAreUpstreams(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "upstream-flags.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, bare, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		want[name] = bare
	}
	delete(want, "version")
	// What wrote the list lacks upstream's JSON logger, which adds these.
	want["log-json-split-stream"], want["log-json-info-buffer-size"] = "true", ""
	got := map[string]string{}
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	new(Flags).AddTo(fs)
	fs.VisitAll(func(f *pflag.Flag) { got[f.Name] = f.NoOptDefVal })
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("ours (-), upstream's (+):\n%s", diff)
	}
}

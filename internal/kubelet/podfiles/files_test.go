package podfiles

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestHosts(t *testing.T) {
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	aliases := []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"foo", "bar"}}}
	tests := map[string]struct{ got, want string }{
		"own network":  {string(Hosts([]string{"10.0.0.2", "fd00::2"}, "web", "", nil)), "# Kubernetes-managed hosts file.\n" + local + "10.0.0.2\tweb\nfd00::2\tweb\n"},
		"domain":       {string(Hosts([]string{"10.0.0.2"}, "web", "sub.shop.svc.cluster.local", nil)), "# Kubernetes-managed hosts file.\n" + local + "10.0.0.2\tweb.sub.shop.svc.cluster.local\tweb\n"},
		"aliases":      {string(Hosts([]string{"10.0.0.2"}, "web", "", aliases)), "# Kubernetes-managed hosts file.\n" + local + "10.0.0.2\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\tfoo\tbar\n"},
		"node's":       {string(NodeHosts([]byte("127.0.0.1 localhost\n"), aliases)), "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n# Entries added by HostAliases.\n1.2.3.4\tfoo\tbar\n"},
		"node's alone": {string(NodeHosts(nil, nil)), "# Kubernetes-managed hosts file (host network).\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.got, test.want); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
		})
	}
}

func TestHostname(t *testing.T) {
	tests := map[string]struct {
		change       func(*v1.Pod)
		name, domain string
		kernel       string
		err          string
	}{
		"pod's name": {name: "web", kernel: "web"},
		"long name": {
			change: func(p *v1.Pod) { p.Name = strings.Repeat("a", 62) + "-bcd" },
			name:   strings.Repeat("a", 62), kernel: strings.Repeat("a", 62),
		},
		"hostname":  {change: func(p *v1.Pod) { p.Spec.Hostname = "h" }, name: "h", kernel: "h"},
		"subdomain": {change: func(p *v1.Pod) { p.Spec.Subdomain = "s" }, name: "web", domain: "s.shop.svc.cluster.local", kernel: "web"},
		"full name": {
			change: func(p *v1.Pod) { p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "s", new(true) },
			name:   "web", domain: "s.shop.svc.cluster.local", kernel: "web.s.shop.svc.cluster.local",
		},
		"full name that is too long": {
			change: func(p *v1.Pod) { p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = strings.Repeat("s", 60), new(true) },
			name:   "web", domain: strings.Repeat("s", 60) + ".shop.svc.cluster.local", err: "failed to construct FQDN from pod hostname and cluster domain, FQDN web.",
		},
		"override": {
			change: func(p *v1.Pod) { p.Spec.HostnameOverride, p.Spec.Subdomain = new("a.b"), "s" },
			name:   "a.b", kernel: "a.b",
		},
		"bad hostname": {change: func(p *v1.Pod) { p.Spec.Hostname = "_" }, err: "hostname"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod()
			if test.change != nil {
				test.change(pod)
			}
			host, domain, err := testNode().Hostname(pod)
			var kernel string
			if err == nil {
				kernel, err = kernelHostname(pod, host, domain)
			}
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, want := [3]string{host, domain, kernel}, [3]string{test.name, test.domain, test.kernel}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestParseResolvConf(t *testing.T) {
	got := ParseResolvConf([]byte("# old\n; too\nnameserver 1.1.1.1\n nameserver\t2.2.2.2 x\nnameserver\nsearch a.org\nsearch b.org. . c.org\noptions ndots:2 debug\noptions ndots:3\nsortlist x"))
	want := DNS{Servers: []string{"1.1.1.1", "2.2.2.2"}, Searches: []string{"b.org", "c.org"}, Options: []string{"ndots:3", "debug"}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add([]byte("nameserver 1.1.1.1\nsearch a b.\noptions x:1 y\n"))
	f.Add([]byte("search .\n\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := ParseResolvConf(text)
		// What was read, written again and read again is the same.
		var b strings.Builder
		for _, s := range d.Servers {
			fmt.Fprintf(&b, "nameserver %s\n", s)
		}
		fmt.Fprintf(&b, "search %s\noptions %s\n", strings.Join(d.Searches, " "), strings.Join(d.Options, " "))
		again := ParseResolvConf([]byte(b.String()))
		if len(again.Servers) != len(d.Servers) || len(again.Options) != len(d.Options) || len(again.Searches) > len(d.Searches) {
			t.Errorf("%q: read %v, then %v", text, d, again)
		}
		for _, s := range slices.Concat(d.Servers, d.Searches, d.Options) {
			if s == "" || strings.ContainsAny(s, " \t\n") {
				t.Errorf("%q: %q is no word", text, s)
			}
		}
	})
}

func TestPodDNS(t *testing.T) {
	many := func(n int, format string) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return out
	}
	tests := map[string]struct {
		pod      func(*v1.Pod)
		cluster  []string
		want     *runtimeapi.DNSConfig
		warnings []string // reasons
	}{
		"without cluster DNS": {
			pod:  func(p *v1.Pod) { p.Spec.DNSPolicy = v1.DNSClusterFirst },
			want: &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.org"}, Options: []string{"timeout:1"}},
		},
		"cluster first": {
			pod: func(p *v1.Pod) { p.Spec.DNSPolicy = v1.DNSClusterFirst }, cluster: []string{"10.96.0.10"},
			want: &runtimeapi.DNSConfig{
				Servers:  []string{"10.96.0.10"},
				Searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org"},
				Options:  []string{"ndots:5"},
			},
		},
		"cluster first on the node's network": {
			pod: func(p *v1.Pod) { p.Spec.DNSPolicy, p.Spec.HostNetwork = v1.DNSClusterFirst, true }, cluster: []string{"10.96.0.10"},
			want: &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.org"}, Options: []string{"timeout:1"}},
		},
		"with host net, without cluster DNS": {
			pod:      func(p *v1.Pod) { p.Spec.DNSPolicy, p.Spec.HostNetwork = v1.DNSClusterFirstWithHostNet, true },
			want:     &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.org"}, Options: []string{"timeout:1"}},
			warnings: []string{"MissingClusterDNS"},
		},
		"none": {
			pod: func(p *v1.Pod) {
				p.Spec.DNSPolicy = v1.DNSNone
				p.Spec.DNSConfig = &v1.PodDNSConfig{
					Nameservers: []string{"1.1.1.1"}, Searches: []string{"x.org"},
					Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}, {Name: "edns0"}},
				}
			},
			want: &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}, Searches: []string{"x.org"}, Options: []string{"ndots:2", "edns0"}},
		},
		"added": {
			pod: func(p *v1.Pod) {
				p.Spec.DNSPolicy = v1.DNSDefault
				p.Spec.DNSConfig = &v1.PodDNSConfig{
					Nameservers: []string{"1.1.1.1", "192.0.2.53"}, Searches: []string{"example.org", "x.org"},
					Options: []v1.PodDNSConfigOption{{Name: "timeout", Value: new("3")}},
				}
			},
			want: &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53", "1.1.1.1"}, Searches: []string{"example.org", "x.org"}, Options: []string{"timeout:3"}},
		},
		"too many": {
			pod: func(p *v1.Pod) {
				p.Spec.DNSPolicy = v1.DNSNone
				p.Spec.DNSConfig = &v1.PodDNSConfig{Nameservers: many(4, "1.1.1.%d"), Searches: many(40, "d%d.org")}
			},
			want:     &runtimeapi.DNSConfig{Servers: many(3, "1.1.1.%d"), Searches: many(32, "d%d.org")},
			warnings: []string{"DNSConfigForming", "DNSConfigForming"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := testNode()
			node.ClusterDNS = test.cluster
			got, warnings := node.PodDNS(testPod(test.pod))
			if diff := cmp.Diff(got.String(), test.want.String()); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
			var reasons []string
			for _, w := range warnings {
				reasons = append(reasons, w.Reason)
			}
			if diff := cmp.Diff(reasons, test.warnings); diff != "" {
				t.Errorf("warnings: got -, want +:\n%s", diff)
			}
		})
	}
}

// TestHash holds that hashes stay what they were, and what the upstream
// kubelet computes: a container is restarted when they change.
func TestHash(t *testing.T) {
	if got, want := Hash(&v1.Container{Name: "test_container", Image: "foo/image:v1", Command: []string{"x"}}), "8e45cbd0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPullPolicyOfTheNodesOwnImages(t *testing.T) {
	for written, want := range map[v1.PullPolicy]v1.PullPolicy{
		v1.PullAlways: v1.PullIfNotPresent, v1.PullIfNotPresent: v1.PullIfNotPresent, v1.PullNever: v1.PullNever,
	} {
		if got := PullPolicy(&v1.Container{Image: "holdfast.local/demo:latest", ImagePullPolicy: written}); got != want {
			t.Errorf("%s: got %s, want %s", written, got, want)
		}
	}
	if got := PullPolicy(&v1.Container{Image: "example.com/a:1", ImagePullPolicy: v1.PullAlways}); got != v1.PullAlways {
		t.Errorf("Always of another image: got %s", got)
	}
}

func TestImage(t *testing.T) {
	tests := map[string]struct {
		want   string // empty: refused
		policy v1.PullPolicy
	}{
		"holdfast.local/demo:latest":          {"holdfast.local/demo:latest", v1.PullIfNotPresent},
		"busybox":                             {"busybox:latest", v1.PullAlways},
		"busybox:latest":                      {"busybox:latest", v1.PullAlways},
		"busybox:1.36":                        {"busybox:1.36", v1.PullIfNotPresent},
		"localhost:5000/a":                    {"localhost:5000/a:latest", v1.PullAlways},
		"localhost:5000/a/b:1":                {"localhost:5000/a/b:1", v1.PullIfNotPresent},
		"a@sha256:" + strings.Repeat("0", 64): {"a@sha256:" + strings.Repeat("0", 64), v1.PullIfNotPresent},
		"UPPER":                               {"", v1.PullIfNotPresent},
		"":                                    {"", v1.PullIfNotPresent},
		"a b":                                 {"", v1.PullIfNotPresent},
	}
	for ref, test := range tests {
		t.Run(ref, func(t *testing.T) {
			got, err := Image(ref)
			if got != test.want && test.want != "" || (err != nil) != (test.want == "") {
				t.Errorf("got %q and %v, want %q", got, err, test.want)
			}
			if got := PullPolicy(&v1.Container{Image: ref}); got != test.policy {
				t.Errorf("policy: got %s, want %s", got, test.policy)
			}
		})
	}
}

func TestSubPath(t *testing.T) {
	env := []Var{{"POD", "web"}, {"UP", ".."}, {"ROOT", "/etc"}}
	tests := map[string]struct {
		mount v1.VolumeMount
		want  string
		bad   bool
	}{
		"none":            {v1.VolumeMount{}, "", false},
		"plain":           {v1.VolumeMount{SubPath: "a/b"}, "a/b", false},
		"dots in a name":  {v1.VolumeMount{SubPath: "a..b"}, "a..b", false},
		"out":             {v1.VolumeMount{SubPath: "a/../../b"}, "", true},
		"absolute":        {v1.VolumeMount{SubPath: "/etc"}, "", true},
		"expression":      {v1.VolumeMount{SubPathExpr: "logs/$(POD)"}, "logs/web", false},
		"expression out":  {v1.VolumeMount{SubPathExpr: "$(UP)/x"}, "", true},
		"expression root": {v1.VolumeMount{SubPathExpr: "$(ROOT)"}, "", true},
		"missing":         {v1.VolumeMount{SubPathExpr: "$(NONE)"}, "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := SubPath(&test.mount, env)
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("got %q and %v, want %q, error %v", got, err, test.want, test.bad)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	auth := func(user, password string) string {
		return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	}
	config := func(entries string) *v1.Secret {
		return &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{` + entries + `}}`)}}
	}
	tests := map[string]struct {
		secrets []*v1.Secret
		image   string
		want    []string // users
		bad     bool
	}{
		"host":           {[]*v1.Secret{config(`"reg.example":{"auth":"` + auth("ann", "x:y") + `"}`)}, "reg.example/a/b:1", []string{"ann x:y"}, false},
		"another host":   {[]*v1.Secret{config(`"reg.example":{"username":"ann"}`)}, "reg.example.org/a", nil, false},
		"URL":            {[]*v1.Secret{config(`"https://reg.example/v1/":{"username":"ann","password":"p"}`)}, "reg.example/a", []string{"ann p"}, false},
		"hub":            {[]*v1.Secret{config(`"https://index.docker.io/v1/":{"username":"ann","password":"p"}`)}, "busybox", []string{"ann p"}, false},
		"glob":           {[]*v1.Secret{config(`"*.example":{"username":"ann","password":"p"}`)}, "reg.example/a", []string{"ann p"}, false},
		"glob, one part": {[]*v1.Secret{config(`"*.example":{"username":"ann"}`)}, "a.b.example/a", nil, false},
		"port":           {[]*v1.Secret{config(`"localhost:5000":{"username":"ann","password":"p"}`)}, "localhost:5000/a", []string{"ann p"}, false},
		"longest first": {
			[]*v1.Secret{config(`"reg.example":{"username":"ann","password":"p"}`), config(`"reg.example/team":{"username":"team","password":"t"},"reg.example/tea":{"username":"no"}`)},
			"reg.example/team/app",
			[]string{"team t", "ann p"},
			false,
		},
		"older form": {
			[]*v1.Secret{{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"reg.example":{"username":"ann","password":"p"}}`)}}},
			"reg.example/a",
			[]string{"ann p"},
			false,
		},
		"another type":         {[]*v1.Secret{{Type: v1.SecretTypeOpaque}}, "reg.example/a", nil, false},
		"broken beside a good": {[]*v1.Secret{config(`"`), config(`"reg.example":{"username":"ann","password":"p"}`)}, "reg.example/a", []string{"ann p"}, true},
		"auth that is no pair": {[]*v1.Secret{config(`"reg.example":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("ann")) + `"}`)}, "reg.example/a", nil, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Credentials(test.secrets, test.image)
			var users []string
			for _, a := range got {
				users = append(users, a.Auth.GetUsername()+" "+a.Auth.GetPassword())
			}
			if diff := cmp.Diff(users, test.want); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
			if (err != nil) != test.bad {
				t.Errorf("got error %v, want error %v", err, test.bad)
			}
		})
	}
}

func FuzzCredentials(f *testing.F) {
	f.Add(`{"auths":{"reg.example":{"auth":"YTpi"}}}`, "reg.example/a")
	f.Add(`{"auths":{"https://index.docker.io/v1/":{"username":"a"}}}`, "busybox")
	f.Add(`{"auths":{"[":{}}}`, "a.b/c")
	f.Fuzz(func(t *testing.T, config, image string) {
		s := &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(config)}}
		got, err := Credentials([]*v1.Secret{s}, image)
		if _, bad := Image(image); bad != nil && (err == nil || len(got) > 0) {
			t.Errorf("credentials for %q, which is no image", image)
		}
	})
}

func TestSysctlName(t *testing.T) {
	for in, want := range map[string]string{
		"net.ipv4.tcp_syncookies": "net.ipv4.tcp_syncookies",
		"net/ipv4/tcp_syncookies": "net.ipv4.tcp_syncookies",
		"net/ipv4/conf/eth0.1/x":  "net.ipv4.conf.eth0/1.x",
		"net.ipv4.conf.eth0/1.x":  "net.ipv4.conf.eth0/1.x",
		"":                        "",
	} {
		if got := SysctlName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestPaths(t *testing.T) {
	uid := types.UID("u")
	got := []string{PodFolder("/k", uid), ContainerFolder("/k", uid, "c"), HostsPath("/k", uid), LogFolder("/l", "ns", "n", uid), LogPath("c", 3)}
	want := []string{"/k/pods/u", "/k/pods/u/containers/c", "/k/pods/u/etc-hosts", "/l/ns_n_u", "c/3.log"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}

package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// api holds objects by "Kind namespace/name".
type api map[string]any

func find[T any](a api, kind RefKind, namespace, name string) (T, error) {
	object, ok := a[Ref{kind, namespace, name}.String()].(T)
	if !ok {
		return object, apierrors.NewNotFound(schema.GroupResource{Resource: strings.ToLower(string(kind))}, name)
	}
	return object, nil
}

func (a api) GetConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return find[*v1.ConfigMap](a, RefConfigMap, namespace, name)
}

func (a api) GetSecret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return find[*v1.Secret](a, RefSecret, namespace, name)
}

func (a api) GetClaim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return find[*v1.PersistentVolumeClaim](a, RefClaim, namespace, name)
}

func (a api) GetPersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return find[*v1.PersistentVolume](a, RefPersistentVolume, "", name)
}

// Token tells the request in the token.
func (a api) Token(_ context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if _, ok := a[Ref{RefServiceAccount, namespace, account}.String()]; !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, account)
	}
	bound := request.Spec.BoundObjectRef
	out := request.DeepCopy()
	out.Status.Token = fmt.Sprintf("%s %v %d %s %s %s", account, request.Spec.Audiences, *request.Spec.ExpirationSeconds, bound.Kind, bound.Name, bound.UID)
	return out, nil
}

var objects = api{
	"ConfigMap ns/cm":           &v1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"bin": {0, 1}}},
	"Secret ns/s":               &v1.Secret{Data: map[string][]byte{"password": []byte("x")}},
	"ServiceAccount ns/sa":      true,
	"ServiceAccount ns/default": true,
}

func pod(change func(*v1.Pod), volumes ...v1.Volume) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid", Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{
			NodeName: "node", ServiceAccountName: "sa", Volumes: volumes,
			Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{
				Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")},
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m")},
			}}},
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

func configMap(name string, change func(*v1.ConfigMapVolumeSource)) v1.Volume {
	source := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}
	if change != nil {
		change(source)
	}
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: source}}
}

func projected(mode *int32, sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources, DefaultMode: mode}}}
}

func downward(items ...v1.DownwardAPIVolumeFile) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}}}
}

func field(path, of string) v1.DownwardAPIVolumeFile {
	return v1.DownwardAPIVolumeFile{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: of}}
}

func resourceOf(path, of, divisor string) v1.DownwardAPIVolumeFile {
	ref := &v1.ResourceFieldSelector{ContainerName: "app", Resource: of}
	if divisor != "" {
		ref.Divisor = resource.MustParse(divisor)
	}
	return v1.DownwardAPIVolumeFile{Path: path, ResourceFieldRef: ref}
}

func TestResolveFiles(t *testing.T) {
	fsGroup := func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(2000))} }
	runAs := func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000))} }
	static := func(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }
	token := v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: "vault", ExpirationSeconds: new(int64(600))}}
	secretNamed := func(name string) v1.Volume {
		return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name, DefaultMode: new(int32(0o400))}}}
	}
	tests := []struct {
		name    string
		pod     func(*v1.Pod)
		volume  v1.Volume
		want    map[string]string // mode, owner and content
		wantErr string
		waiting bool
	}{
		{"configMap", nil, configMap("cm", nil), map[string]string{"a": "644 1", "b": "644 2", "bin": "644 \x00\x01"}, "", false},
		{"configMap items", nil, configMap("cm", func(s *v1.ConfigMapVolumeSource) {
			s.Items = []v1.KeyToPath{{Key: "a", Path: "x/y"}, {Key: "b", Path: "z", Mode: new(int32(0o600)), User: new(int64(7))}}
			s.DefaultMode = new(int32(0o440))
		}), map[string]string{"x/y": "440 1", "z": "600 7 2"}, "", false},
		{"configMap missing", nil, configMap("no", nil), nil, `waiting for ConfigMap ns/no (volume "v"): not found`, true},
		{"configMap missing, optional", nil, configMap("no", func(s *v1.ConfigMapVolumeSource) { s.Optional = new(true) }), map[string]string{}, "", false},
		{"key missing", nil, configMap("cm", func(s *v1.ConfigMapVolumeSource) { s.Items = []v1.KeyToPath{{Key: "q", Path: "q"}} }), nil, `waiting for ConfigMap ns/cm (volume "v"): it has no key "q"`, true},
		{"key missing, optional", nil, configMap("cm", func(s *v1.ConfigMapVolumeSource) {
			s.Items = []v1.KeyToPath{{Key: "q", Path: "q"}, {Key: "a", Path: "a"}}
			s.Optional = new(true)
		}), map[string]string{"a": "644 1"}, "", false},
		{"secret", nil, secretNamed("s"), map[string]string{"password": "400 x"}, "", false},
		{"secret with fsGroup", fsGroup, secretNamed("s"), map[string]string{"password": "440 x"}, "", false},
		{"secret missing", nil, secretNamed("no"), nil, `waiting for Secret ns/no (volume "v"): not found`, true},
		{
			"downward fields", nil, downward(field("name", "metadata.name"), field("l", "metadata.labels"), field("one", "metadata.labels['app']"), field("uid", "metadata.uid")),
			map[string]string{"name": "644 web", "l": `644 app="web"`, "one": "644 web", "uid": "644 uid"},
			"", false,
		},
		{
			"downward resources", nil, downward(resourceOf("m", "limits.memory", "1Mi"), resourceOf("c", "requests.cpu", ""), resourceOf("cm", "requests.cpu", "1m"), resourceOf("lc", "limits.cpu", "1"), resourceOf("e", "requests.ephemeral-storage", "")),
			map[string]string{"m": "644 64", "c": "644 2", "cm": "644 1500", "lc": "644 4", "e": "644 0"},
			"", false,
		},
		{"downward bad field", nil, downward(field("x", "spec.nodeName")), nil, `downward API file "x"`, false},
		{"downward bad resource", nil, downward(resourceOf("x", "limits.gpu", "")), nil, `unsupported container resource "limits.gpu"`, false},
		{"token", nil, projected(nil, token), map[string]string{"token": "644 sa [vault] 600 Pod web uid"}, "", false},
		{"token with fsGroup", fsGroup, projected(nil, token), map[string]string{"token": "640 sa [vault] 600 Pod web uid"}, "", false},
		{"token for one user", runAs, projected(nil, token), map[string]string{"token": "600 1000 sa [vault] 600 Pod web uid"}, "", false},
		{"token of a static pod", static, projected(nil, token), map[string]string{"token": "644 sa [vault] 600 Node node "}, "", false},
		{"token, no account", func(p *v1.Pod) { p.Spec.ServiceAccountName = "no" }, projected(nil, token), nil, "waiting for ServiceAccount ns/no", true},
		{"token, default account", func(p *v1.Pod) { p.Spec.ServiceAccountName = "" }, projected(nil, token), map[string]string{"token": "644 default [vault] 600 Pod web uid"}, "", false},
		{"projected all", nil, projected(new(int32(0o444)),
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Items: []v1.KeyToPath{{Key: "a", Path: "x"}}}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{field("n", "metadata.namespace")}}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "no"}, Optional: new(true)}},
		), map[string]string{"x": "444 1", "password": "444 x", "n": "444 ns"}, "", false},
		{"projected tells all that is missing", nil, projected(nil,
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "no1"}}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "no2"}}},
		), nil, "waiting for ConfigMap ns/no1 (volume \"v\"): not found; waiting for Secret ns/no2 (volume \"v\"): not found", true},
	}
	host := Host{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Resolve(t.Context(), pod(tt.pod, tt.volume), &tt.volume, objects, host)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) || errors.Is(err, ErrWaiting) != tt.waiting {
					t.Errorf("err = %v (waiting %v), want %q", err, errors.Is(err, ErrWaiting), tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]string{}
			for name, f := range got.Files {
				owner := ""
				if f.UID != nil {
					owner = fmt.Sprint(*f.UID, " ")
				}
				files[name] = fmt.Sprintf("%o %s%s", f.Mode, owner, f.Data)
			}
			if diff := cmp.Diff(files, tt.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

func TestResolveDisk(t *testing.T) {
	claim := func(change func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
		c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
		if change != nil {
			change(c)
		}
		return c
	}
	pv := func(change func(*v1.PersistentVolume)) *v1.PersistentVolume {
		p := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		p.Spec.ClaimRef = &v1.ObjectReference{UID: "claim"}
		p.Spec.Local = &v1.LocalVolumeSource{Path: "/mnt/disks/1/"}
		if change != nil {
			change(p)
		}
		return p
	}
	onNode := func(name string) func(*v1.PersistentVolume) {
		return func(p *v1.PersistentVolume) {
			term := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{name}}}}
			p.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}}
		}
	}
	block := func(p *v1.PersistentVolume) { p.Spec.VolumeMode = new(v1.PersistentVolumeBlock) }
	used := func(mounts []v1.VolumeMount, devices []v1.VolumeDevice) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Containers[0].VolumeMounts, p.Spec.Containers[0].VolumeDevices = mounts, devices
		}
	}
	withClaim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	ofOwn := v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{}}}
	owned := func(by types.UID) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) {
			c.Name = "web-v"
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: by, Controller: new(true)}}
		}
	}
	limit := resource.MustParse("1Mi")
	storage := func(size string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	}
	turn := func(status v1.ClaimResourceStatus) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) {
			c.Status.Capacity = storage("1Gi")
			c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: status}
		}
	}
	fsGroup := func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(2000)), FSGroupChangePolicy: new(v1.FSGroupChangeOnRootMismatch)}
	}
	tests := []struct {
		name    string
		pod     func(*v1.Pod)
		source  v1.VolumeSource
		objects api
		want    Volume
		wantErr string
	}{
		{"emptyDir", fsGroup, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, nil, Volume{ID: ID{Kind: EmptyDir, Dir: "v"}, FSGroup: new(int64(2000)), FSPolicy: v1.FSGroupChangeOnRootMismatch}, ""},
		{"disk, with a size", nil, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}, nil, Volume{ID: ID{Kind: EmptyDir, Dir: "v"}, SizeLimit: 1 << 20}, ""},
		{"disk, own users", func(p *v1.Pod) { p.Spec.HostUsers = new(false) }, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, nil, Volume{ID: ID{Kind: EmptyDir, Dir: "v"}, OwnUsers: true}, ""},
		{"memory, pod's limit", nil, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}, nil, Volume{ID: ID{Kind: EmptyDir, Dir: "v"}, Medium: v1.StorageMediumMemory, SizeLimit: 64 << 20}, ""},
		{"memory, own limit", nil, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit}}, nil, Volume{ID: ID{Kind: EmptyDir, Dir: "v"}, Medium: v1.StorageMediumMemory, SizeLimit: 1 << 20}, ""},
		{"memory, node's", func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}, nil, Volume{ID: ID{Kind: EmptyDir, Dir: "v"}, Medium: v1.StorageMediumMemory, SizeLimit: 1 << 30}, ""},
		{"hostPath keeps its group", fsGroup, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/x/../y", Type: new(v1.HostPathFile)}}, nil, Volume{ID: ID{Kind: HostPath, Dir: "v"}, HostPath: "/y", HostPathType: v1.HostPathFile, FSPolicy: v1.FSGroupChangeOnRootMismatch}, ""},
		{"nfs keeps its group", fsGroup, v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/p", ReadOnly: true}}, nil, Volume{ID: ID{Kind: NFS, Dir: "v"}, NFSServer: "s", NFSPath: "/p", ReadOnly: true, FSPolicy: v1.FSGroupChangeOnRootMismatch}, ""},
		{"iscsi", nil, v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}}, nil, Volume{}, "iscsi: this version cannot mount such volumes"},
		{"nfs behind a claim", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) {
			p.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/p"}}
			p.Spec.MountOptions = []string{"hard"}
		})}, Volume{ID: ID{Kind: NFS, Dir: "pv"}, NFSServer: "s", NFSPath: "/p", MountOptions: []string{"hard"}}, ""},
		{"local", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(nil)}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1"}, ""},
		{"read-only by its modes", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany} })}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1", ReadOnly: true}, ""},
		{"hostPath behind a claim", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) {
			p.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}
		})}, Volume{ID: ID{Kind: HostPath, Dir: "v"}, HostPath: "/data"}, ""},
		{"hostPath of nowhere", nil, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "data"}}, nil, Volume{}, `volume "v": hostPath.path "data" is not absolute: begin it with /`},
		{"local of nowhere", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.Local.Path = "disks/1" })}, Volume{}, `volume "v": local.path of PersistentVolume pv "disks/1" is not absolute: begin it with /`},
		{"for one pod at a time", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) {
			p.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		})}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1", OncePod: true}, ""},
		{"grown", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(turn(v1.PersistentVolumeClaimNodeResizePending)), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.Capacity = storage("2Gi") })}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1", GrowTo: 2 << 30}, ""},
		{"grown in part", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(turn(v1.PersistentVolumeClaimNodeResizeInProgress)), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.Capacity = storage("2Gi") })}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1", GrowTo: 2 << 30}, ""},
		{"grown, and it is not our turn", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(turn(v1.PersistentVolumeClaimControllerResizeInProgress)), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.Capacity = storage("2Gi") })}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1"}, ""},
		{"grown, as an older resizer says it", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(func(c *v1.PersistentVolumeClaim) {
			c.Status.Capacity = storage("1Gi")
			c.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
		}), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.Capacity = storage("2Gi") })}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1", GrowTo: 2 << 30}, ""},
		{"grown, and nobody says whose turn it is", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(func(c *v1.PersistentVolumeClaim) { c.Status.Capacity = storage("1Gi") }), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.Capacity = storage("2Gi") })}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1"}, ""},
		{"grown too far", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(turn(v1.PersistentVolumeClaimNodeResizeInfeasible)), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.Capacity = storage("2Gi") })}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1"}, ""},
		{"grown and shown", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(func(c *v1.PersistentVolumeClaim) { c.Status.Capacity = storage("2Gi") }), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.Capacity = storage("2Gi") })}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1"}, ""},
		{"claim in its last use", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(func(c *v1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{}, []string{"kubernetes.io/pvc-protection"}
		}), "PersistentVolume pv": pv(nil)}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1"}, ""},
		{"the pod's own claim", nil, ofOwn, api{"PersistentVolumeClaim ns/web-v": claim(owned("uid")), "PersistentVolume pv": pv(nil)}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1"}, ""},
		{"the pod's own claim is not made yet", nil, ofOwn, nil, Volume{}, `waiting for PersistentVolumeClaim ns/web-v (volume "v"): not found`},
		{"another pod's claim", nil, ofOwn, api{"PersistentVolumeClaim ns/web-v": claim(owned("other")), "PersistentVolume pv": pv(nil)}, Volume{}, "PVC ns/web-v was not created for pod ns/web (pod is not owner)"},
		{"nobody's claim", nil, ofOwn, api{"PersistentVolumeClaim ns/web-v": claim(func(c *v1.PersistentVolumeClaim) { c.Name = "web-v" }), "PersistentVolume pv": pv(nil)}, Volume{}, "PVC ns/web-v was not created for pod ns/web (pod is not owner)"},
		{"no claim", nil, withClaim, nil, Volume{}, `waiting for PersistentVolumeClaim ns/c (volume "v"): not found`},
		{"claim pending", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimPending })}, Volume{}, "not bound to a volume yet (phase Pending)"},
		{"claim being deleted", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })}, Volume{}, "being deleted"},
		{"volume missing", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil)}, Volume{}, "waiting for PersistentVolume pv"},
		{"volume of another claim", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) { p.Spec.ClaimRef.UID = "other" })}, Volume{}, "not bound to claim ns/c"},
		{"volume of this node", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(onNode("here"))}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1"}, ""},
		{"volume of another node", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(onNode("there"))}, Volume{}, "PersistentVolume pv is not for this node"},
		{"iscsi volume", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) {
			p.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{}}
		})}, Volume{}, "spec.iscsi: this version mounts only local, hostPath, nfs and csi"},
		{"block volume", used(nil, []v1.VolumeDevice{{Name: "v"}}), withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(block)}, Volume{ID: ID{Kind: Local, Dir: "pv", Block: true}, HostPath: "/mnt/disks/1"}, ""},
		{"block volume, mounted", used([]v1.VolumeMount{{Name: "v"}}, nil), withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(block)}, Volume{}, "volume v has volumeMode Block, but is specified in volumeMounts"},
		{"filesystem as a device", used(nil, []v1.VolumeDevice{{Name: "v"}}), withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(nil)}, Volume{}, "volume v has volumeMode Filesystem, but is specified in volumeDevices"},
		{"block volume of a folder", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) {
			block(p)
			p.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}
		})}, Volume{}, "spec.volumeMode"},
		{"options and filesystem of a device", nil, withClaim, api{"PersistentVolumeClaim ns/c": claim(nil), "PersistentVolume pv": pv(func(p *v1.PersistentVolume) {
			p.Spec.MountOptions, p.Spec.Local.FSType = []string{"noatime"}, new("xfs")
		})}, Volume{ID: ID{Kind: Local, Dir: "pv"}, HostPath: "/mnt/disks/1", MountOptions: []string{"noatime"}, FSType: "xfs"}, ""},
	}
	host := Host{Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}, Labels: map[string]string{v1.LabelHostname: "here"}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := v1.Volume{Name: "v", VolumeSource: tt.source}
			got, err := Resolve(t.Context(), pod(tt.pod, v), &v, tt.objects, host)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("err = %v, want %q", err, tt.wantErr)
				}
				return
			}
			if claimed := tt.source.PersistentVolumeClaim != nil || tt.source.Ephemeral != nil; (got.PV != nil) != claimed || (got.Claim != nil) != claimed {
				t.Errorf("claim %v, PersistentVolume %v", got.Claim, got.PV)
			}
			got.Claim, got.PV = nil, nil
			tt.want.Name, tt.want.Pod, tt.want.PodUID = "v", types.NamespacedName{Namespace: "ns", Name: "web"}, "uid"
			if diff := cmp.Diff(got, tt.want); err != nil || diff != "" {
				t.Errorf("%v (-got +want):\n%s", err, diff)
			}
		})
	}
}

// Every source that the API has is either resolved or refused by its name.
func TestSupportedNamesEverySource(t *testing.T) {
	sources := reflect.TypeFor[v1.VolumeSource]()
	supported := map[string]bool{"hostPath": true, "emptyDir": true, "secret": true, "configMap": true, "projected": true, "downwardAPI": true, "persistentVolumeClaim": true, "ephemeral": true, "image": true, "nfs": true, "csi": true}
	for i := range sources.NumField() {
		name, _, _ := strings.Cut(sources.Field(i).Tag.Get("json"), ",")
		var v v1.Volume
		reflect.ValueOf(&v.VolumeSource).Elem().Field(i).Set(reflect.New(sources.Field(i).Type.Elem()))
		err := Supported(&v)
		switch {
		case supported[name] && err != nil:
			t.Errorf("%s: %v", name, err)
		case !supported[name] && (err == nil || !strings.HasPrefix(err.Error(), name+":")):
			t.Errorf("%s: %v", name, err)
		}
	}
	// So is every source of a projected volume.
	projections := reflect.TypeFor[v1.VolumeProjection]()
	for i := range projections.NumField() {
		var p v1.VolumeProjection
		reflect.ValueOf(&p).Elem().Field(i).Set(reflect.New(projections.Field(i).Type.Elem()))
		if v := projected(nil, p); Supported(&v) != nil {
			t.Errorf("%v", Supported(&v))
		}
	}
	v := projected(nil, v1.VolumeProjection{Secret: &v1.SecretProjection{}}, v1.VolumeProjection{})
	if err := Supported(&v); err == nil || !strings.Contains(err.Error(), "projected.sources[1].no source") {
		t.Errorf("%v", err)
	}
}

func TestRefs(t *testing.T) {
	env := v1.Container{
		EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "c2"}}}, {SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s2"}}}},
		Env: []v1.EnvVar{
			{ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "c1"}}}},
			{ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s3"}}}},
			{Value: "plain"},
		},
	}
	p := pod(func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{env}
		p.Spec.RuntimeClassName = new("safe")
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}}
	}, configMap("c1", nil), projected(nil, v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s1"}}}, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c3"}}}),
		v1.Volume{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "p"}}},
		v1.Volume{Name: "own", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
	var got []string
	for _, ref := range Refs(p) {
		got = append(got, ref.String())
	}
	want := []string{"ConfigMap ns/c1", "ConfigMap ns/c2", "ConfigMap ns/c3", "PersistentVolumeClaim ns/p", "PersistentVolumeClaim ns/web-own", "RuntimeClass safe", "Secret ns/pull", "Secret ns/s1", "Secret ns/s2", "Secret ns/s3"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestNestedMountpoints(t *testing.T) {
	p := pod(func(p *v1.Pod) {
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
			{Name: "v", MountPath: "/etc/app"}, {Name: "w", MountPath: "/etc/app/sub/"}, {Name: "w", MountPath: "/etc/app2"}, {Name: "x", MountPath: "/etc/app/sub/deep"}, {Name: "x", MountPath: "/other"},
		}
	})
	if diff := cmp.Diff(nestedMountpoints(p, "v"), []string{"sub", "sub/deep"}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if got := nestedMountpoints(p, "x"); got != nil {
		t.Errorf("x: %v", got)
	}
}

func TestRefreshAt(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		name string
		life time.Duration
		want time.Duration
	}{
		{"ten minutes", 10 * time.Minute, 8 * time.Minute},
		{"an hour", time.Hour, 48 * time.Minute},
		{"a week", 7 * 24 * time.Hour, 24 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token := &authenticationv1.TokenRequest{
				Spec:   authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tt.life / time.Second))},
				Status: authenticationv1.TokenRequestStatus{ExpirationTimestamp: metav1.NewTime(now.Add(tt.life))},
			}
			if got := RefreshAt(token).Sub(now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

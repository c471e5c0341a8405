package objects_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/localapi"
	"github.com/holdfast-dev/holdfast/internal/localapi/objects"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// api runs the embedded API until the test ends. Applying is worth testing only
// against the server's own apply.
func api(t *testing.T) (kubernetes.Interface, dynamic.Interface) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf") //nolint:usetesting // a short path: the store's socket is in it
	if err != nil {
		t.Fatal(err)
	}
	s, err := localapi.New(localapi.Config{
		DataDir: filepath.Join(dir, "etcd"), PKIDir: filepath.Join(dir, "pki"), RunDir: filepath.Join(dir, "run"),
		Listen: []string{"127.0.0.1:0"}, NodeName: "node1", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the API: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	kubeconfig, err := s.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 200, 400
	return kubernetes.NewForConfigOrDie(cfg), dynamic.NewForConfigOrDie(cfg)
}

// An applier that runs, and what it reports.
type running struct {
	*objects.Applier
	stop func()

	mu     sync.Mutex
	faults []string
}

func start(t *testing.T, client dynamic.Interface) *running {
	t.Helper()
	return startEvery(t, client, 200*time.Millisecond)
}

// startEvery starts one that applies everything again each period.
func startEvery(t *testing.T, client dynamic.Interface, period time.Duration) *running {
	t.Helper()
	r := &running{}
	r.Applier = objects.New(objects.Config{
		Client: client, Period: period, Retry: 20 * time.Millisecond, MaxRetry: 100 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Report: func(faults []manifest.Fault) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.faults = nil
			for _, f := range faults {
				r.faults = append(r.faults, f.String())
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *running) reported() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.faults, "\n")
}

var parser = manifest.New()

func docs(t *testing.T, text string) []manifest.Document {
	t.Helper()
	r := parser.Parse("a.yaml", []byte(text+"\n# end\n"))
	if len(r.Faults) > 0 {
		t.Fatal(r.Faults)
	}
	return r.Documents
}

// eventually waits until check returns "".
func eventually(t *testing.T, check func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		wrong := check()
		if wrong == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(wrong)
		case <-tick.C:
		}
	}
}

func gone(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return err.Error()
	default:
		return "it is still there"
	}
}

const everyKind = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, namespace: shop}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop, labels: {app: shop}}
data: {a: "1", b: "2"}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: shop}
data: {old: b2xk}
stringData: {user: me, pass: hunter2}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: shop}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /d}, storageClassName: other}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: x.example/y
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 10
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: safe}
handler: gvisor
---
apiVersion: certificates.k8s.io/v1
kind: ClusterTrustBundle
metadata: {name: roots}
spec:
  trustBundle: |
    -----BEGIN CERTIFICATE-----
    MIIBcDCCARegAwIBAgIUQrbw5oeommrwiKAlxsi0891mhl8wCgYIKoZIzj0EAwIw
    DTELMAkGA1UEAwwCY2EwIBcNMjYxMTI4MTgxNDA1WhgPMjEyNjExMDQxODE0MDVa
    MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3v5lf4ri
    jbXyO/h9cx4yq98XYwSC/f5nAjP4S/z3VCTDVm2+QuXazqihprY18fgmVLSCA3H/
    XxJ9gPokjPrB66NTMFEwHQYDVR0OBBYEFBHrq6AL1P2SLBuuG5H0P4pTaXv3MB8G
    A1UdIwQYMBaAFBHrq6AL1P2SLBuuG5H0P4pTaXv3MA8GA1UdEwEB/wQFMAMBAf8w
    CgYIKoZIzj0EAwIDRwAwRAIgFZlCl9O99PU9daMK/W3ofYOTVoWNre1d+Y7hkeqf
    KVwCIHs/DzNHr+VKeGFsEirCktBPbdm0taSnEBY521AiLL0D
    -----END CERTIFICATE-----
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {containers: [{name: c, image: i}]}
`

func TestApplier(t *testing.T) {
	outer := t
	kube, client := api(t)
	core := kube.CoreV1()
	ctx := t.Context()

	r := start(t, client)
	t.Run("every kind, in order, but pods", func(t *testing.T) {
		r.Update(docs(t, everyKind))
		eventually(t, func() string {
			for _, get := range []func() error{
				func() error { _, err := core.Namespaces().Get(ctx, "shop", metav1.GetOptions{}); return err },
				func() error {
					_, err := core.PersistentVolumeClaims("shop").Get(ctx, "claim", metav1.GetOptions{})
					return err
				},
				func() error {
					_, err := core.ServiceAccounts("shop").Get(ctx, "robot", metav1.GetOptions{})
					return err
				},
				func() error { _, err := core.PersistentVolumes().Get(ctx, "disk", metav1.GetOptions{}); return err },
				func() error {
					_, err := kube.StorageV1().StorageClasses().Get(ctx, "fast", metav1.GetOptions{})
					return err
				},
				func() error {
					_, err := kube.NodeV1().RuntimeClasses().Get(ctx, "safe", metav1.GetOptions{})
					return err
				},
				func() error {
					_, err := kube.CertificatesV1().ClusterTrustBundles().Get(ctx, "roots", metav1.GetOptions{})
					return err
				},
				func() error {
					_, err := kube.SchedulingV1().PriorityClasses().Get(ctx, "high", metav1.GetOptions{})
					return err
				},
			} {
				if err := get(); err != nil {
					return err.Error()
				}
			}
			secret, err := core.Secrets("shop").Get(ctx, "password", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			want := map[string][]byte{"old": []byte("old"), "user": []byte("me"), "pass": []byte("hunter2")}
			return cmp.Diff(secret.Data, want)
		})
		cm, err := core.ConfigMaps("shop").Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantLabels := map[string]string{"app": "shop", objects.Label: objects.LabelValue}
		if diff := cmp.Diff(cm.Labels, wantLabels); diff != "" {
			t.Errorf("labels (-got +want):\n%s", diff)
		}
		if got := cm.Annotations[objects.FileAnnotation]; got != "a.yaml" {
			t.Errorf("file: got %q, want a.yaml", got)
		}
		if pods, err := core.Pods("").List(ctx, metav1.ListOptions{}); err != nil || len(pods.Items) > 0 {
			t.Errorf("pods: got %d, %v", len(pods.Items), err)
		}
		if got := r.reported(); got != "" {
			t.Errorf("reported %s", got)
		}
	})

	t.Run("keys that leave an object go, those of others stay", func(t *testing.T) {
		cm, err := core.ConfigMaps("shop").Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cm.Data["theirs"] = "x"
		if _, err := core.ConfigMaps("shop").Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		edited := strings.NewReplacer(`, b: "2"`, "", `a: "1"`, `a: "3"`, "user: me, ", "").Replace(everyKind)
		r.Update(docs(t, edited))
		eventually(t, func() string {
			cm, err := core.ConfigMaps("shop").Get(ctx, "settings", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			secret, err := core.Secrets("shop").Get(ctx, "password", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return cmp.Diff(cm.Data, map[string]string{"a": "3", "theirs": "x"}) +
				cmp.Diff(secret.Data, map[string][]byte{"old": []byte("old"), "pass": []byte("hunter2")})
		})
	})

	t.Run("what somebody deletes or edits is brought back", func(t *testing.T) {
		if err := core.ConfigMaps("shop").Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			_, err := core.ConfigMaps("shop").Get(ctx, "settings", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return ""
		})
	})

	t.Run("a change that the API refuses is a fault until it is undone", func(t *testing.T) {
		r.Update(docs(t, strings.Replace(everyKind, "accessModes: [ReadWriteOnce], storageClassName: fast", "accessModes: [ReadWriteMany], storageClassName: fast", 1)))
		eventually(t, func() string {
			got := r.reported()
			for _, want := range []string{"a.yaml:4: PersistentVolumeClaim shop/claim: spec: the API did not take it: ", "immutable after creation except resources.requests and volumeAttributesClassName for bound claims; it cannot be changed: undo the edit"} {
				if !strings.Contains(got, want) {
					return "want " + want + " in: " + got
				}
			}
			return ""
		})
		r.Update(docs(t, everyKind))
		eventually(t, r.reported)
	})

	t.Run("a namespace that is missing, and then comes", func(t *testing.T) {
		const cm = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: later}\n"
		r.Update(docs(t, everyKind+cm))
		eventually(t, func() string {
			if got := r.reported(); !strings.HasSuffix(got, "; add a Namespace document of that name") {
				return "got: " + got
			}
			return ""
		})
		if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, r.reported)
		if _, err := core.ConfigMaps("later").Get(ctx, "c", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("what leaves the folder goes, even while nobody runs", func(t *testing.T) {
		foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: "later", Labels: map[string]string{objects.Label: objects.LabelValue}}}
		if _, err := core.ConfigMaps("later").Create(ctx, foreign, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r = start(outer, client)
		_, fromNamespace, _ := strings.Cut(everyKind, "kind: Namespace\n")
		r.Update(docs(t, "apiVersion: v1\nkind: Namespace\n"+fromNamespace))
		eventually(t, func() string {
			_, err := core.ConfigMaps("later").Get(ctx, "c", metav1.GetOptions{})
			return gone(err)
		})
		eventually(t, func() string {
			_, err := kube.StorageV1().StorageClasses().Get(ctx, "fast", metav1.GetOptions{})
			return gone(err)
		})
		if _, err := core.ConfigMaps("later").Get(ctx, "foreign", metav1.GetOptions{}); err != nil {
			t.Errorf("an object that only carries the label: %v", err)
		}
		if _, err := core.Namespaces().Get(ctx, "shop", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("what was there before is given up, not deleted", func(t *testing.T) {
		r.Update(docs(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: later, labels: {mine: \"1\"}}\n"))
		eventually(t, func() string {
			ns, err := core.Namespaces().Get(ctx, "later", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return cmp.Diff(ns.Labels, map[string]string{"kubernetes.io/metadata.name": "later", "mine": "1", objects.Label: objects.LabelAdopted})
		})
		r.Update(nil)
		eventually(t, func() string {
			ns, err := core.Namespaces().Get(ctx, "later", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if ns.DeletionTimestamp != nil {
				t.Fatal("it is being deleted")
			}
			return cmp.Diff(ns.Labels, map[string]string{"kubernetes.io/metadata.name": "later"})
		})
	})

	t.Run("what somebody deletes, and then leaves the folder, comes back with its file", func(t *testing.T) {
		r.stop()
		slow := startEvery(t, client, time.Hour)
		const (
			lost   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: lost}\n"
			marker = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: marker}\n"
		)
		maps := core.ConfigMaps("default")
		there := func(name string) {
			t.Helper()
			eventually(t, func() string {
				if _, err := maps.Get(ctx, name, metav1.GetOptions{}); err != nil {
					return err.Error()
				}
				return ""
			})
		}
		slow.Update(docs(t, lost))
		there("lost")
		if err := maps.Delete(ctx, "lost", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		slow.Update(docs(t, marker))
		there("marker")
		slow.Update(docs(t, lost))
		there("lost")
	})
}

// Before the first Update nothing is known, and nothing is deleted.
func TestNothingBeforeUpdate(t *testing.T) {
	r := start(t, nil) // a call would panic
	r.stop()
}

package staticpod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"

	corev1internal "k8s.io/kubernetes/pkg/apis/core/v1"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

func parse(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	r := manifest.New().Parse("a.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: c\n    image: i\n"+spec))
	if len(r.Faults) > 0 {
		t.Fatal(r.Faults)
	}
	return r.Documents[0].Object.(*corev1.Pod)
}

// TestReferences also asks upstream's own check, which stops at the first.
func TestReferences(t *testing.T) {
	tests := []struct{ name, spec, field, resource string }{
		{"none", "", "", ""},
		{"service account", "  serviceAccountName: me\n", "spec.serviceAccountName", "serviceaccounts"},
		{"pull secret", "  imagePullSecrets: [{name: s}]\n", "spec.imagePullSecrets[0]", "secrets"},
		{"env from a config map", "    env: [{name: A, value: b}, {name: B, valueFrom: {configMapKeyRef: {name: m, key: k}}}]\n", "spec.containers[0].env[1].valueFrom.configMapKeyRef", "configmaps"},
		{"env from a secret", "    env: [{name: B, valueFrom: {secretKeyRef: {name: m, key: k}}}]\n", "spec.containers[0].env[0].valueFrom.secretKeyRef", "secrets"},
		{"all env of a config map", "    envFrom: [{configMapRef: {name: m}}]\n", "spec.containers[0].envFrom[0].configMapRef", "configmaps"},
		{"all env of a secret", "  initContainers: [{name: i, image: i, envFrom: [{secretRef: {name: m}}]}]\n", "spec.initContainers[0].envFrom[0].secretRef", "secrets"},
		{"config map", "  volumes: [{name: v, configMap: {name: m}}]\n", "spec.volumes[0].configMap", "configmaps"},
		{"secret", "  volumes: [{name: e, emptyDir: {}}, {name: v, secret: {secretName: m}}]\n", "spec.volumes[1].secret", "secrets"},
		{"claim", "  volumes: [{name: v, persistentVolumeClaim: {claimName: m}}]\n", "spec.volumes[0].persistentVolumeClaim", "persistentvolumeclaims"},
		{"ephemeral", "  volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}}]\n", "spec.volumes[0].ephemeral", "persistentvolumeclaims"},
		{"csi", "  volumes: [{name: v, csi: {driver: d.example}}]\n", "spec.volumes[0].csi", "csidrivers"},
		{"azure file", "  volumes: [{name: v, azureFile: {secretName: m, shareName: s}}]\n", "spec.volumes[0].azureFile", "secrets"},
		{"projected secret", "  volumes: [{name: v, projected: {sources: [{secret: {name: m}}]}}]\n", "spec.volumes[0].projected.sources[0].secret", "secrets"},
		{"projected downward API", "  volumes: [{name: v, projected: {sources: [{downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}}]\n", "", ""},
		{"iscsi secret", "  volumes: [{name: v, iscsi: {targetPortal: 1.2.3.4, iqn: iqn.2001-04.com.example:x, lun: 0, secretRef: {name: m}}}]\n", "spec.volumes[0].iscsi.secretRef", "secrets"},
		{"host path", "  volumes: [{name: v, hostPath: {path: /d}}]\n", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := parse(t, tt.spec)
			var want []Reference
			if tt.field != "" {
				want = []Reference{{tt.field, tt.resource}}
			}
			if diff := cmp.Diff(References(p), want); diff != "" {
				t.Errorf("references (-got +want):\n%s", diff)
			}
			var internal core.Pod
			if err := corev1internal.Convert_v1_Pod_To_core_Pod(p, &internal, nil); err != nil {
				t.Fatal(err)
			}
			if has, _, err := pod.HasAPIObjectReference(&internal); err != nil || has != (tt.field != "") {
				t.Errorf("upstream: has a reference %v, %v; want %v", has, err, tt.field != "")
			}
		})
	}
}

func TestAddToken(t *testing.T) {
	const initContainer = "  initContainers: [{name: i, image: i}]\n"
	const mount = "    volumeMounts: [{name: mine, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]\n  volumes: [{name: mine, emptyDir: {}}]\n"
	tests := []struct {
		name, spec string
		volume     string // name of the token volume, if one is wanted
		mounts     int    // of the token volume
	}{
		{"no service account", "", "", 0},
		{"one container", "  serviceAccountName: me\n", "kube-api-access-56789", 1},
		{"init container too", "  serviceAccountName: me\n" + initContainer, "kube-api-access-56789", 2},
		{"the older field", "  serviceAccount: me\n", "kube-api-access-56789", 1},
		{"declined", "  serviceAccountName: me\n  automountServiceAccountToken: false\n", "", 0},
		{"asked for", "  serviceAccountName: me\n  automountServiceAccountToken: true\n", "kube-api-access-56789", 1},
		{"a mount of its own", mount + "  serviceAccountName: me\n", "", 0},
		{"one of two has its own mount", mount + "  serviceAccountName: me\n" + initContainer, "kube-api-access-56789", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := parse(t, tt.spec)
			p.UID = "0123456789"
			AddToken(p)
			AddToken(p) // changes nothing more
			volume, mounts := "", 0
			for _, v := range p.Spec.Volumes {
				if v.Projected != nil {
					volume += v.Name
				}
			}
			for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
				for _, m := range c.VolumeMounts {
					if m.Name == volume {
						mounts++
					}
				}
			}
			if volume != tt.volume || mounts != tt.mounts {
				t.Errorf("got volume %q with %d mounts, want %q with %d", volume, mounts, tt.volume, tt.mounts)
			}
		})
	}
}

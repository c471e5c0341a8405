package main

import (
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const namespace = "default"

// world holds the pods, and the objects that their volumes are made of. Nothing
// of it changes.
type world struct {
	pods      []*v1.Pod
	configMap *v1.ConfigMap
	rootCA    *v1.ConfigMap
	secret    *v1.Secret
}

// newWorld makes so many pods, each with what pods have: an emptyDir, a
// ConfigMap, a Secret, and what every pod gets for its service account.
func newWorld(pods int) *world {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "1"}
	}
	w := &world{
		configMap: &v1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"app.yaml": "listen: 8080\n", "log.yaml": "level: info\n"}},
		rootCA:    &v1.ConfigMap{ObjectMeta: meta("kube-root-ca.crt"), Data: map[string]string{"ca.crt": "certificates"}},
		secret:    &v1.Secret{ObjectMeta: meta("password"), Data: map[string][]byte{"user": []byte("app"), "password": []byte("secret")}},
	}
	expires := int64(3607)
	mode := int32(0o644)
	account := &v1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &expires}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: w.rootCA.Name}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}}
	volumes := []v1.Volume{
		{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "settings", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: w.configMap.Name}, DefaultMode: &mode}}},
		{Name: "password", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: w.secret.Name, DefaultMode: &mode}}},
		{Name: "account", VolumeSource: v1.VolumeSource{Projected: account}},
	}
	var mounts []v1.VolumeMount
	for _, volume := range volumes {
		mounts = append(mounts, v1.VolumeMount{Name: volume.Name, MountPath: "/" + volume.Name})
	}
	for i := range pods {
		meta := meta(fmt.Sprintf("pod-%d", i))
		meta.UID = types.UID(fmt.Sprintf("0b8a2f1c-4d6e-4f7a-9b0c-%012d", i))
		w.pods = append(w.pods, &v1.Pod{ObjectMeta: meta, Spec: v1.PodSpec{
			NodeName: "bench", ServiceAccountName: "default", Volumes: volumes,
			Containers: []v1.Container{{Name: "main", Image: "image", VolumeMounts: mounts}},
		}})
	}
	return w
}

func (w *world) getConfigMap(_, name string) (*v1.ConfigMap, error) {
	for _, one := range []*v1.ConfigMap{w.configMap, w.rootCA} {
		if one.Name == name {
			return one, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (w *world) getSecret(_, name string) (*v1.Secret, error) {
	if name != w.secret.Name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return w.secret, nil
}

func (w *world) getToken(_, _ string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	out := request.DeepCopy()
	out.Status = authenticationv1.TokenRequestStatus{Token: "token", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
	return out, nil
}

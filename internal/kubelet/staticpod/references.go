package staticpod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// A Reference is a place at which a pod names an object of the API.
type Reference struct {
	Field    string // `spec.volumes[0].secret`
	Resource string // what is named: `secrets`
}

// References returns the places at which a pod names objects of the API that
// its node would have to ask for. Under a control plane a static pod may have
// none, as the upstream kubelet has it: whoever writes to the folder could
// otherwise read every Secret of the cluster.
func References(pod *corev1.Pod) []Reference {
	var refs references
	spec := &pod.Spec
	refs.addIf(spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != "", "spec.serviceAccountName", "serviceaccounts")
	for i := range spec.ImagePullSecrets {
		refs.add(fmt.Sprintf("spec.imagePullSecrets[%d]", i), "secrets")
	}
	refs.addIf(len(spec.ResourceClaims) > 0, "spec.resourceClaims", "resourceclaims")
	for i := range spec.InitContainers {
		refs.container(fmt.Sprintf("spec.initContainers[%d]", i), &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		refs.container(fmt.Sprintf("spec.containers[%d]", i), &spec.Containers[i])
	}
	for i := range spec.Volumes {
		refs.volume(fmt.Sprintf("spec.volumes[%d]", i), &spec.Volumes[i])
	}
	return refs
}

type references []Reference

func (r *references) add(field, resource string) { *r = append(*r, Reference{field, resource}) }

func (r *references) addIf(is bool, field, resource string) {
	if is {
		r.add(field, resource)
	}
}

func (r *references) container(path string, c *corev1.Container) {
	for i, e := range c.Env {
		if from := e.ValueFrom; from != nil {
			at := fmt.Sprintf("%s.env[%d].valueFrom", path, i)
			r.addIf(from.ConfigMapKeyRef != nil, at+".configMapKeyRef", "configmaps")
			r.addIf(from.SecretKeyRef != nil, at+".secretKeyRef", "secrets")
		}
	}
	for i, e := range c.EnvFrom {
		at := fmt.Sprintf("%s.envFrom[%d]", path, i)
		r.addIf(e.ConfigMapRef != nil, at+".configMapRef", "configmaps")
		r.addIf(e.SecretRef != nil, at+".secretRef", "secrets")
	}
}

func (r *references) volume(path string, v *corev1.Volume) {
	r.addIf(v.ConfigMap != nil, path+".configMap", "configmaps")
	r.addIf(v.Secret != nil, path+".secret", "secrets")
	r.addIf(v.PersistentVolumeClaim != nil, path+".persistentVolumeClaim", "persistentvolumeclaims")
	r.addIf(v.Ephemeral != nil, path+".ephemeral", "persistentvolumeclaims")
	r.addIf(v.CSI != nil, path+".csi", "csidrivers")
	r.addIf(v.Glusterfs != nil, path+".glusterfs", "endpoints")
	r.addIf(v.AzureFile != nil, path+".azureFile", "secrets")
	r.addIf(v.CephFS != nil && v.CephFS.SecretRef != nil, path+".cephfs.secretRef", "secrets")
	r.addIf(v.Cinder != nil && v.Cinder.SecretRef != nil, path+".cinder.secretRef", "secrets")
	r.addIf(v.FlexVolume != nil && v.FlexVolume.SecretRef != nil, path+".flexVolume.secretRef", "secrets")
	r.addIf(v.RBD != nil && v.RBD.SecretRef != nil, path+".rbd.secretRef", "secrets")
	r.addIf(v.ScaleIO != nil && v.ScaleIO.SecretRef != nil, path+".scaleIO.secretRef", "secrets")
	r.addIf(v.ISCSI != nil && v.ISCSI.SecretRef != nil, path+".iscsi.secretRef", "secrets")
	r.addIf(v.StorageOS != nil && v.StorageOS.SecretRef != nil, path+".storageos.secretRef", "secrets")
	if v.Projected == nil {
		return
	}
	for i, s := range v.Projected.Sources {
		at := fmt.Sprintf("%s.projected.sources[%d]", path, i)
		r.addIf(s.ConfigMap != nil, at+".configMap", "configmaps")
		r.addIf(s.Secret != nil, at+".secret", "secrets")
		r.addIf(s.ServiceAccountToken != nil, at+".serviceAccountToken", "serviceaccounts")
		r.addIf(s.ClusterTrustBundle != nil, at+".clusterTrustBundle", "clustertrustbundles")
		r.addIf(s.PodCertificate != nil, at+".podCertificate", "podcertificates")
	}
}

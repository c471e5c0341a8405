package podvolumes

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/atomicdir"
)

// content gathers the files of one volume.
type content struct {
	files map[string]atomicdir.File
	group bool   // the pod has an fsGroup, which must be able to read
	mode  *int32 // default of the volume; nil: 0644
	user  *int64 // default of the volume
}

// put adds a file; a later source of a projected volume replaces an earlier
// one's file, as upstream's does.
func (c *content) put(name string, data []byte, mode *int32, user *int64) {
	bits := fs.FileMode(0o644)
	if c.mode != nil {
		bits = fs.FileMode(*c.mode).Perm()
	}
	if mode != nil {
		bits = fs.FileMode(*mode).Perm()
	}
	if c.group {
		bits |= 0o440
	}
	if user == nil {
		user = c.user
	}
	c.files[path.Clean(name)] = atomicdir.File{Data: data, Mode: bits, UID: user}
}

// files returns the files of a content volume.
func (r resolver) files(ctx context.Context) (map[string]atomicdir.File, error) {
	c := &content{files: map[string]atomicdir.File{}}
	c.group = r.pod.Spec.SecurityContext != nil && r.pod.Spec.SecurityContext.FSGroup != nil
	var err error
	switch v := r.volume; {
	case v.ConfigMap != nil:
		c.mode, c.user = v.ConfigMap.DefaultMode, v.ConfigMap.DefaultUser
		err = r.configMap(ctx, c, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		c.mode, c.user = v.Secret.DefaultMode, v.Secret.DefaultUser
		err = r.secret(ctx, c, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.DownwardAPI != nil:
		c.mode, c.user = v.DownwardAPI.DefaultMode, v.DownwardAPI.DefaultUser
		err = r.downward(c, v.DownwardAPI.Items)
	case v.Projected != nil:
		c.mode, c.user = v.Projected.DefaultMode, v.Projected.DefaultUser
		err = r.projected(ctx, c, v.Projected.Sources)
	}
	return c.files, err
}

// projected gathers every source, and tells everything that is missing at once.
func (r resolver) projected(ctx context.Context, c *content, sources []v1.VolumeProjection) error {
	var errs []error
	for i, source := range sources {
		switch {
		case source.ConfigMap != nil:
			errs = append(errs, r.configMap(ctx, c, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional))
		case source.Secret != nil:
			errs = append(errs, r.secret(ctx, c, source.Secret.Name, source.Secret.Items, source.Secret.Optional))
		case source.DownwardAPI != nil:
			errs = append(errs, r.downward(c, source.DownwardAPI.Items))
		case source.ServiceAccountToken != nil:
			errs = append(errs, r.token(ctx, c, source.ServiceAccountToken))
		case source.ClusterTrustBundle != nil:
			errs = append(errs, r.trustBundle(ctx, c, source.ClusterTrustBundle))
		case source.PodCertificate != nil:
			errs = append(errs, r.certificate(ctx, c, i, source.PodCertificate))
		}
	}
	return Join(errs...)
}

func (r resolver) configMap(ctx context.Context, c *content, name string, items []v1.KeyToPath, opt *bool) error {
	object, err := r.objects.GetConfigMap(ctx, r.pod.Namespace, name)
	if optional(opt, err) {
		return nil
	}
	if err != nil {
		return r.waiting(RefConfigMap, name, err)
	}
	data := make(map[string][]byte, len(object.Data)+len(object.BinaryData))
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, object.BinaryData)
	return r.keys(c, Ref{RefConfigMap, r.pod.Namespace, name}, data, items, opt)
}

func (r resolver) secret(ctx context.Context, c *content, name string, items []v1.KeyToPath, opt *bool) error {
	object, err := r.objects.GetSecret(ctx, r.pod.Namespace, name)
	if optional(opt, err) {
		return nil
	}
	if err != nil {
		return r.waiting(RefSecret, name, err)
	}
	return r.keys(c, Ref{RefSecret, r.pod.Namespace, name}, object.Data, items, opt)
}

// keys adds all keys of an object, or those that items name.
func (r resolver) keys(c *content, ref Ref, data map[string][]byte, items []v1.KeyToPath, opt *bool) error {
	if len(items) == 0 {
		for key, value := range data {
			c.put(key, value, nil, nil)
		}
		return nil
	}
	var errs []error
	for _, item := range items {
		value, ok := data[item.Key]
		switch {
		case ok:
			c.put(item.Path, value, item.Mode, item.User)
		case opt == nil || !*opt:
			errs = append(errs, &WaitingError{ref, r.volume.Name, fmt.Errorf("it has no key %q", item.Key)})
		}
	}
	return Join(errs...)
}

package objects

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// resources gives the names of the kinds for errors, as upstream says them.
var resources = map[podvolumes.RefKind]schema.GroupResource{
	podvolumes.RefConfigMap:        {Resource: "configmaps"},
	podvolumes.RefSecret:           {Resource: "secrets"},
	podvolumes.RefClaim:            {Resource: "persistentvolumeclaims"},
	podvolumes.RefPersistentVolume: {Resource: "persistentvolumes"},
	podvolumes.RefCSIDriver:        {Group: storagev1.GroupName, Resource: "csidrivers"},
	podvolumes.RefRuntimeClass:     {Group: nodev1.GroupName, Resource: "runtimeclass"},
	podvolumes.RefTrustBundle:      {Group: certificatesv1.GroupName, Resource: "clustertrustbundles"},
}

// GetConfigMap returns a ConfigMap: from memory if a pod holds it, waiting for
// the first answer if there was none yet, and from the API server otherwise.
func (s *Store) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return get[*v1.ConfigMap](ctx, s, podvolumes.Ref{Kind: podvolumes.RefConfigMap, Namespace: namespace, Name: name})
}

// GetSecret returns a Secret, as GetConfigMap a ConfigMap.
func (s *Store) GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return get[*v1.Secret](ctx, s, podvolumes.Ref{Kind: podvolumes.RefSecret, Namespace: namespace, Name: name})
}

// GetClaim returns a PersistentVolumeClaim, as GetConfigMap a ConfigMap.
func (s *Store) GetClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return get[*v1.PersistentVolumeClaim](ctx, s, podvolumes.Ref{Kind: podvolumes.RefClaim, Namespace: namespace, Name: name})
}

// GetPersistentVolume returns a PersistentVolume, as GetConfigMap a ConfigMap.
// Whoever holds the claim that is bound to it from now on holds it too.
func (s *Store) GetPersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	ref := podvolumes.Ref{Kind: podvolumes.RefPersistentVolume, Name: name}
	s.holdWithClaim(ref)
	return get[*v1.PersistentVolume](ctx, s, ref)
}

// GetRuntimeClass returns a RuntimeClass, as GetConfigMap a ConfigMap.
func (s *Store) GetRuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	return get[*nodev1.RuntimeClass](ctx, s, podvolumes.Ref{Kind: podvolumes.RefRuntimeClass, Name: name})
}

// GetCSIDriver returns a CSIDriver, as GetConfigMap a ConfigMap.
func (s *Store) GetCSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return get[*storagev1.CSIDriver](ctx, s, podvolumes.Ref{Kind: podvolumes.RefCSIDriver, Name: name})
}

// GetVolumeAttachment returns a VolumeAttachment as the API server has it now: a
// node of a cluster may not watch them.
func (s *Store) GetVolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return s.cfg.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
}

// Token returns a token of a service account for a request, an earlier one
// while that has a fifth of its life left. If no new one is to be had, the
// earlier one serves until it expires.
func (s *Store) Token(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return s.tokens.get(ctx, namespace, serviceAccount, request)
}

// holdWithClaim gives a PersistentVolume the holders of the claim bound to it.
func (s *Store) holdWithClaim(ref podvolumes.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holders := map[types.UID]bool{}
	for _, e := range s.mu.entries {
		claim, ok := e.object.(*v1.PersistentVolumeClaim)
		if !ok || claim.Spec.VolumeName != ref.Name {
			continue
		}
		for uid := range e.holders {
			holders[uid] = true
		}
	}
	for uid := range holders {
		s.holdLocked(uid, ref)
	}
}

func get[T runtime.Object](ctx context.Context, s *Store, ref podvolumes.Ref) (T, error) {
	var none T
	object, err := s.lookup(ctx, ref)
	if err != nil {
		return none, err
	}
	typed, ok := object.(T)
	if !ok {
		return none, fmt.Errorf("get %s: the API server sent a %T", ref, object)
	}
	return typed, nil
}

func (s *Store) lookup(ctx context.Context, ref podvolumes.Ref) (runtime.Object, error) {
	if s.asksEachTime(ref) {
		return s.direct(ctx, ref)
	}
	s.mu.Lock()
	e := s.mu.entries[ref]
	if e == nil {
		s.mu.Unlock()
		return s.direct(ctx, ref)
	}
	known, born := e.known, e.born
	s.mu.Unlock()
	patience, stop := s.patience(known, born)
	defer stop()
	select {
	case <-known:
	case <-patience:
	case <-e.stop:
		return s.direct(ctx, ref)
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the first answer about %s: %w", ref, context.Cause(ctx))
	}
	object, synced, err := s.last(e)
	switch {
	case !synced && err == nil:
		return s.remembered(ref, fmt.Errorf("the API server has not answered about %s yet", ref))
	case !synced:
		return s.remembered(ref, err)
	case object == nil:
		return nil, apierrors.NewNotFound(resources[ref.Kind], ref.Name)
	}
	return object, nil
}

// last returns what was last seen of an object, if anything was, or why not.
func (s *Store) last(e *entry) (object runtime.Object, synced bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.object, e.synced, e.err
}

// direct returns an object as the API server has it now. Where that does not
// answer, what was last seen serves, or what an earlier run kept.
func (s *Store) direct(ctx context.Context, ref podvolumes.Ref) (runtime.Object, error) {
	s.mu.Lock()
	e := s.mu.entries[ref]
	s.mu.Unlock()
	if s.cfg.Memory != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.Patience)
		defer cancel()
	}
	object, err := s.client(ref).get(ctx)
	if err == nil {
		return object, nil
	}
	if e != nil && silent(err) {
		if object, synced, _ := s.last(e); synced && object != nil {
			return object, nil
		}
	}
	return s.remembered(ref, err)
}

// GetServiceAccount returns a ServiceAccount as the API server has it now.
func (s *Store) GetServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return s.cfg.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// settings is what the API says of how a driver wants to be used.
type settings struct {
	driver         string
	known          bool          // there is a CSIDriver
	attach         bool          // volumes must be attached first
	podInfo        bool          // it is told whose volume it is
	republish      bool          // it is asked again and again
	refresh        time.Duration // how often it is asked what fits on the node; 0: once
	group          storagev1.FSGroupPolicy
	modes          []storagev1.VolumeLifecycleMode
	tokens         []storagev1.TokenRequest
	tokensAsSecret bool
}

// settings returns those of a driver. A driver without a CSIDriver has
// upstream's defaults.
func (h *Host) settings(ctx context.Context, name string) (settings, error) {
	object, err := h.cfg.Objects.GetCSIDriver(ctx, name)
	var out settings
	switch {
	case apierrors.IsNotFound(err):
		out = settingsOf(name, nil)
	case err != nil:
		return settings{}, fmt.Errorf("read CSIDriver %s: %w", name, err)
	default:
		out = settingsOf(name, &object.Spec)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.attach[name] = out.attach
	return out, nil
}

// Attaches reports whether the volumes of a driver are attached to the node
// before they are used, as far as is known. It does not block.
func (h *Host) Attaches(driver string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	attach, known := h.mu.attach[driver]
	return attach || !known
}

func settingsOf(name string, s *storagev1.CSIDriverSpec) settings {
	out := settings{driver: name, attach: true, group: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
	if s == nil {
		return out
	}
	out.known = true
	out.attach = s.AttachRequired == nil || *s.AttachRequired
	out.podInfo = s.PodInfoOnMount != nil && *s.PodInfoOnMount
	out.republish = s.RequiresRepublish != nil && *s.RequiresRepublish
	if s.FSGroupPolicy != nil && *s.FSGroupPolicy != "" {
		out.group = *s.FSGroupPolicy
	}
	if s.NodeAllocatableUpdatePeriodSeconds != nil {
		out.refresh = time.Duration(*s.NodeAllocatableUpdatePeriodSeconds) * time.Second
	}
	out.modes, out.tokens = s.VolumeLifecycleModes, s.TokenRequests
	out.tokensAsSecret = s.ServiceAccountTokenInSecrets != nil && *s.ServiceAccountTokenInSecrets
	return out
}

// takes says why a driver cannot have a volume. One that nothing is known of has
// only PersistentVolumes.
func (s settings) takes(a *podvolumes.CSIAttributes) error {
	mode := storagev1.VolumeLifecyclePersistent
	if a.Ephemeral {
		mode = storagev1.VolumeLifecycleEphemeral
	}
	switch {
	case !s.known && a.Ephemeral:
		return fmt.Errorf("CSI driver %s has no CSIDriver object, which is to list %q in spec.volumeLifecycleModes for volumes that are written into pods", s.driver, mode)
	case s.known && !slices.Contains(s.modes, mode):
		return fmt.Errorf("CSI driver %s does not take such volumes: spec.volumeLifecycleModes of its CSIDriver lists %q, not %q", s.driver, s.modes, mode)
	}
	return nil
}

// context is what a driver is told of a volume when it is published. Tokens go
// there or, if the driver says so, into secrets.
func (h *Host) context(ctx context.Context, v *podvolumes.Volume, want settings, secrets map[string]string) (map[string]string, error) {
	about := map[string]string{}
	maps.Copy(about, v.CSI.Context)
	if want.podInfo {
		maps.Copy(about, map[string]string{
			"csi.storage.k8s.io/pod.name":            v.Pod.Name,
			"csi.storage.k8s.io/pod.namespace":       v.Pod.Namespace,
			"csi.storage.k8s.io/pod.uid":             string(v.PodUID),
			"csi.storage.k8s.io/serviceAccount.name": v.CSI.ServiceAccount,
			"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(v.CSI.Ephemeral),
		})
	}
	tokens, err := h.tokens(ctx, v, want.tokens)
	if err != nil || tokens == "" {
		return about, err
	}
	const key = "csi.storage.k8s.io/serviceAccount.tokens"
	if want.tokensAsSecret {
		secrets[key] = tokens
	} else {
		about[key] = tokens
	}
	return about, nil
}

// tokens returns the tokens of the pod's account that a driver asks for, as JSON
// by audience; empty if it asks for none.
func (h *Host) tokens(ctx context.Context, v *podvolumes.Volume, requests []storagev1.TokenRequest) (string, error) {
	if len(requests) == 0 {
		return "", nil
	}
	all := map[string]authenticationv1.TokenRequestStatus{}
	for _, request := range requests {
		ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{}, ExpirationSeconds: request.ExpirationSeconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: v.Pod.Name, UID: v.PodUID},
		}}
		if request.Audience != "" {
			ask.Spec.Audiences = []string{request.Audience}
		}
		answer, err := h.cfg.Objects.Token(ctx, v.Pod.Namespace, v.CSI.ServiceAccount, ask)
		if err != nil {
			ref := podvolumes.Ref{Kind: podvolumes.RefServiceAccount, Namespace: v.Pod.Namespace, Name: v.CSI.ServiceAccount}
			return "", &podvolumes.WaitingError{Ref: ref, Volume: v.Name, Err: err}
		}
		all[request.Audience] = answer.Status
	}
	data, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("encode tokens: %w", err)
	}
	return string(data), nil
}

package podvolumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	storage "k8s.io/component-helpers/storage/volume"
)

// Objects gives the API objects that volumes are made of. A missing object is
// an error that apierrors.IsNotFound knows. What it returns must not be changed.
type Objects interface {
	GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	GetClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	GetPersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// TrustBundles returns all there are.
	TrustBundles(ctx context.Context) (*certificatesv1.ClusterTrustBundleList, error)
	// PodCertificate returns the certificate for a source of a pod's projected
	// volume, without waiting for one to be issued.
	PodCertificate(ctx context.Context, pod *v1.Pod, volume string, source int) (*Certificate, error)
	Token(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Host is what a volume's content may say about the machine.
type Host struct {
	Allocatable v1.ResourceList // of the node; stands in for limits that a container does not set
	// Labels are the node's, against which a PersistentVolume's node affinity is
	// held; nil: it is not checked.
	Labels map[string]string
	// Attaches reports whether a controller attaches the volumes of a CSI driver to
	// the node; nil: those of every driver. It must not block.
	Attaches func(driver string) bool
}

// Resolve makes a Volume of a pod's volume. The error matches ErrWaiting if an
// API object is missing, not ready or cannot be had now.
func Resolve(ctx context.Context, pod *v1.Pod, v *v1.Volume, objects Objects, host Host) (Volume, error) {
	if err := Supported(v); err != nil {
		return Volume{}, fmt.Errorf("%s: %w", Describe(v.Name), err)
	}
	r := resolver{pod, v, objects, host}
	kind, _ := KindOf(v)
	out := Volume{ID: ID{Kind: kind, Dir: v.Name}, Name: v.Name, Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, PodUID: pod.UID}
	if sc := pod.Spec.SecurityContext; sc != nil {
		out.FSGroup = sc.FSGroup
		if sc.FSGroupChangePolicy != nil {
			out.FSPolicy = *sc.FSGroupChangePolicy
		}
	}
	switch {
	case v.EmptyDir != nil:
		out.Medium, out.Mode = v.EmptyDir.Medium, v.EmptyDir.Mode
		out.OwnUsers = pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
		out.SizeLimit = memorySize(pod, v.EmptyDir, host.Allocatable)
		if limit := DiskLimit(v); limit != nil {
			out.SizeLimit = limit.Value()
		}
		return r.hugePages(out)
	case v.HostPath != nil:
		return r.hostPath(out, v.HostPath)
	case v.NFS != nil:
		return r.nfs(out, v.NFS), nil
	case v.CSI != nil:
		return r.csiInline(out, v.CSI), nil
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return r.claim(ctx, out)
	}
	files, err := r.files(ctx)
	if err != nil {
		return Volume{}, err
	}
	out.Files, out.Nested = files, nestedMountpoints(pod, v.Name)
	return out, nil
}

// resolver makes one volume of one pod.
type resolver struct {
	pod     *v1.Pod
	volume  *v1.Volume
	objects Objects
	host    Host
}

func (r resolver) waiting(kind RefKind, name string, err error) error {
	ref := Ref{kind, r.pod.Namespace, name}
	if kind == RefPersistentVolume || kind == RefTrustBundle {
		ref.Namespace = ""
	}
	return &WaitingError{ref, r.volume.Name, err}
}

// hugePages completes an emptyDir whose medium is huge pages.
func (r resolver) hugePages(out Volume) (Volume, error) {
	if !IsHugePages(out.Medium) {
		return out, nil
	}
	var err error
	if out.PageSize, err = hugePageSize(r.pod, out.Medium); err != nil {
		return Volume{}, fmt.Errorf("%s: %w", Describe(r.volume.Name), err)
	}
	if limit := r.volume.EmptyDir.SizeLimit; limit != nil {
		out.SizeLimit = limit.Value()
	}
	return out, nil
}

// hostPath never changes the ownership of what belongs to the host, as upstream.
func (r resolver) hostPath(out Volume, source *v1.HostPathVolumeSource) (Volume, error) {
	if err := r.absolute("hostPath.path", source.Path); err != nil {
		return Volume{}, err
	}
	out.Kind = HostPath
	out.HostPath = filepath.Clean(source.Path)
	if source.Type != nil {
		out.HostPathType = *source.Type
	}
	out.FSGroup = nil
	return out, nil
}

// absolute refuses a path that would be another one for each folder in which a node is
// started.
func (r resolver) absolute(field, path string) error {
	if filepath.IsAbs(path) {
		return nil
	}
	return fmt.Errorf("%s: %s %q is not absolute: begin it with /", Describe(r.volume.Name), field, path)
}

// nfs never changes the ownership of what belongs to the server, as upstream.
func (r resolver) nfs(out Volume, source *v1.NFSVolumeSource) Volume {
	out.Kind = NFS
	out.NFSServer, out.NFSPath = source.Server, source.Path
	out.ReadOnly = out.ReadOnly || source.ReadOnly
	out.FSGroup = nil
	return out
}

// claimProtection is the finalizer that a claim has as long as pods use it. One
// that is being deleted can still be mounted meanwhile: the pod may be one of
// those, after a reboot.
const claimProtection = "kubernetes.io/pvc-protection"

// claim finds the PersistentVolume behind a claim.
func (r resolver) claim(ctx context.Context, out Volume) (Volume, error) {
	name := ClaimName(r.pod, r.volume)
	claim, err := r.objects.GetClaim(ctx, r.pod.Namespace, name)
	if err != nil {
		return Volume{}, r.waiting(RefClaim, name, err)
	}
	if r.volume.Ephemeral != nil {
		// Somebody else's of the same name holds somebody else's data.
		if err := ephemeral.VolumeIsForPod(r.pod, claim); err != nil {
			return Volume{}, r.waiting(RefClaim, name, err)
		}
	}
	if claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, claimProtection) {
		return Volume{}, r.waiting(RefClaim, name, errors.New("it is being deleted; a pod cannot start to use it"))
	}
	if claim.Status.Phase != v1.ClaimBound || claim.Spec.VolumeName == "" {
		return Volume{}, r.waiting(RefClaim, name, fmt.Errorf("not bound to a volume yet (phase %s)", cmp.Or(string(claim.Status.Phase), "unknown")))
	}
	pv, err := r.objects.GetPersistentVolume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return Volume{}, r.waiting(RefPersistentVolume, claim.Spec.VolumeName, err)
	}
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		return Volume{}, r.waiting(RefPersistentVolume, pv.Name, fmt.Errorf("not bound to claim %s/%s", claim.Namespace, claim.Name))
	}
	if err := SupportedPV(pv); err != nil {
		return Volume{}, fmt.Errorf("%s: %w", Describe(r.volume.Name), err)
	}
	if r.host.Labels != nil {
		if err := storage.CheckNodeAffinity(pv, r.host.Labels); err != nil {
			return Volume{}, fmt.Errorf("%s: PersistentVolume %s is not for this node: %w", Describe(r.volume.Name), pv.Name, err)
		}
	}
	if err := r.rightUse(pv); err != nil {
		return Volume{}, err
	}
	out.ReadOnly = readOnlyModes(pv.Spec.AccessModes)
	if source := r.volume.PersistentVolumeClaim; source != nil {
		out.ReadOnly = out.ReadOnly || source.ReadOnly
	}
	out.Claim, out.PV = claim, pv
	out.OncePod = slices.Equal(pv.Spec.AccessModes, []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod})
	switch {
	case pv.Spec.HostPath != nil:
		return r.hostPath(out, pv.Spec.HostPath)
	case pv.Spec.CSI != nil:
		return r.csiPersistent(out, claim, pv), nil
	}
	if pv.Spec.NFS != nil {
		out.Dir, out.MountOptions = pv.Name, pv.Spec.MountOptions
		return r.nfs(out, pv.Spec.NFS), nil
	}
	if err := r.absolute("local.path of PersistentVolume "+pv.Name, pv.Spec.Local.Path); err != nil {
		return Volume{}, err
	}
	out.ID = ID{Kind: Local, Dir: pv.Name, Block: isBlock(pv)}
	out.HostPath = filepath.Clean(pv.Spec.Local.Path)
	if out.Block {
		out.FSGroup = nil // a device keeps its owner
	} else {
		out.MountOptions = pv.Spec.MountOptions
		if pv.Spec.Local.FSType != nil {
			out.FSType = *pv.Spec.Local.FSType
		}
	}
	if !out.ReadOnly {
		out.GrowTo = growTo(claim, pv)
	}
	return out, nil
}

// rightUse returns an error if a container wants a device of a filesystem, or
// the other way round, in upstream's words.
func (r resolver) rightUse(pv *v1.PersistentVolume) error {
	mounts, devices := uses(r.pod, r.volume.Name)
	switch {
	case isBlock(pv) && mounts:
		return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", r.volume.Name)
	case !isBlock(pv) && devices:
		return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", r.volume.Name)
	}
	return nil
}

func isBlock(pv *v1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// growTo returns the size of a PersistentVolume that its claim does not show
// yet, in bytes, and 0 if it shows it or if the claim does not say that it is the
// node's turn: upstream's rule for what a node has to grow. Older
// resizers say it by a condition alone.
func growTo(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) int64 {
	size, shown := pv.Spec.Capacity.Storage(), claim.Status.Capacity.Storage()
	if shown.IsZero() || size.Cmp(*shown) <= 0 {
		return 0
	}
	switch claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] {
	case v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress:
		return size.Value()
	case "":
		if !slices.ContainsFunc(claim.Status.Conditions, isResizePending) {
			return 0
		}
		return size.Value()
	default: // the driver's turn, or it was tried and cannot be
		return 0
	}
}

func isResizePending(c v1.PersistentVolumeClaimCondition) bool {
	return c.Type == v1.PersistentVolumeClaimFileSystemResizePending && c.Status == v1.ConditionTrue
}

// ClaimName returns the name of the claim that a pod's volume is of; "" if it is
// of none. The claim of a generic ephemeral volume is made for the pod and named
// after it.
func ClaimName(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v)
	}
	return ""
}

func readOnlyModes(modes []v1.PersistentVolumeAccessMode) bool {
	return len(modes) == 1 && modes[0] == v1.ReadOnlyMany
}

// optional tells whether an absent object leaves its files out.
func optional(flag *bool, err error) bool {
	return flag != nil && *flag && apierrors.IsNotFound(err)
}

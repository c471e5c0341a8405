package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

const dirMode = 0o750 // of the folders that lead to a volume: upstream's

// SetUp has a volume staged and published, and returns where it is. For one
// that is there it does nothing, unless its driver wants to be asked again and
// again. The error matches podvolumes.ErrWaiting while the volume is not
// attached to this node.
func (h *Host) SetUp(ctx context.Context, v *podvolumes.Volume) (string, error) {
	path, err := h.setUp(ctx, v)
	if err != nil {
		return "", fmt.Errorf("set up %s: %w", podvolumes.Describe(v.Name), err)
	}
	return path, nil
}

func (h *Host) setUp(ctx context.Context, v *podvolumes.Volume) (string, error) {
	if err := errors.Join(ctx.Err(), checkNames(string(v.PodUID), v.Dir, v.CSI.Driver)); err != nil {
		return "", err
	}
	vol := volume{v.CSI.Driver, v.CSI.Handle}
	unlock, err := h.lock(ctx, vol)
	if err != nil {
		return "", fmt.Errorf("wait for another pod's use of it: %w", err)
	}
	defer unlock()
	target, place := h.layout.target(v.PodUID, v.ID), h.layout.place(v.PodUID, v.ID)
	done, err := h.isDone(target, v)
	if err != nil {
		return "", err
	}
	want, err := h.settings(ctx, v.CSI.Driver)
	switch {
	case done && (err != nil || !want.republish):
		return place, nil // whatever the API says, the pod has it
	case err != nil:
		return "", err
	}
	if err := want.takes(v.CSI); err != nil {
		return "", err
	}
	d, err := h.driver(v.CSI.Driver)
	if err != nil {
		return "", err
	}
	published, err := h.attached(ctx, v, want)
	if err != nil {
		return "", err
	}
	job := job{h, d, v, want, published, target, done}
	if err := job.run(ctx, vol); err != nil {
		return "", err
	}
	return place, nil
}

// isDone reports whether all steps for a pod's volume have been done. The mark
// says so; a reboot leaves the mark and takes the mount.
func (h *Host) isDone(target string, v *podvolumes.Volume) (bool, error) {
	h.mu.Lock()
	known := h.mu.done[target]
	h.mu.Unlock()
	if known {
		return true, nil
	}
	if _, err := os.Lstat(h.layout.Ready(v.PodUID, v.ID)); notThere(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	isMount, err := mounted(target)
	if err != nil && !notThere(err) {
		return false, err
	}
	if isMount {
		h.note(target, true)
	}
	return isMount, nil
}

func (h *Host) note(target string, done bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if done {
		h.mu.done[target] = true
	} else {
		delete(h.mu.done, target)
	}
}

// attached waits, in the sense of podvolumes.ErrWaiting, until a volume that
// must be attached is, and returns what its driver's controller says to the
// driver here.
func (h *Host) attached(ctx context.Context, v *podvolumes.Volume, want settings) (map[string]string, error) {
	if v.CSI.Ephemeral || !want.attach {
		return nil, nil
	}
	name := podvolumes.CSIAttachment(v.CSI.Handle, v.CSI.Driver, h.cfg.Node)
	wait := func(err error) error {
		return &podvolumes.WaitingError{Ref: podvolumes.Ref{Kind: podvolumes.RefVolumeAttachment, Name: name}, Volume: v.Name, Err: err}
	}
	attachment, err := h.cfg.Objects.GetVolumeAttachment(ctx, name)
	if err != nil {
		return nil, wait(err)
	}
	if isExhausted(attachment) {
		h.exhausted(v.CSI.Driver)
	}
	if err := isAttached(attachment); err != nil {
		return nil, wait(err)
	}
	return attachment.Status.AttachmentMetadata, nil
}

// isAttached says why a volume is not attached.
func isAttached(a *storagev1.VolumeAttachment) error {
	switch {
	case a.DeletionTimestamp != nil:
		return errors.New("it is being deleted: the volume is on its way off this node")
	case a.Status.Attached:
		return nil
	case a.Status.AttachError != nil && a.Status.AttachError.Message != "":
		return errors.New(a.Status.AttachError.Message)
	default:
		return fmt.Errorf("driver %s has not attached the volume yet", a.Spec.Attacher)
	}
}

// job is what it takes to give one volume to one pod.
type job struct {
	h         *Host
	d         *driver
	v         *podvolumes.Volume
	want      settings
	published map[string]string // by the driver's controller
	target    string
	again     bool // the pod has it already
}

func (j *job) run(ctx context.Context, vol volume) error {
	if err := j.noteUser(vol); err != nil {
		return err
	}
	staging := ""
	if j.d.stages() && !j.v.CSI.Ephemeral {
		staging = j.h.layout.staging(vol, j.v.ID)
		if err := j.stage(ctx, vol, staging); err != nil {
			return err
		}
	}
	if err := j.publish(ctx, staging); err != nil {
		return errors.Join(err, j.forget(staging, err))
	}
	if j.again {
		return nil
	}
	if !j.d.groups() && podvolumes.GroupOfCSI(j.want.group, j.v) {
		if err := j.h.cfg.SetGroup(ctx, j.target, j.v); err != nil {
			return err
		}
	}
	return j.mark()
}

// noteUser says on disk that the pod is about to have the volume.
func (j *job) noteUser(vol volume) error {
	dir := j.h.layout.record(j.v.PodUID, j.v.ID)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	r := record{
		Spec: j.v.Dir, Handle: vol.handle, Driver: vol.driver, Node: j.h.cfg.Node,
		Attachment: podvolumes.CSIAttachment(vol.handle, vol.driver, j.h.cfg.Node),
	}
	switch {
	case j.v.CSI.Ephemeral:
		r.Mode = string(storagev1.VolumeLifecycleEphemeral)
	case !j.v.Block: // upstream does not say it of devices
		r.Mode = string(storagev1.VolumeLifecyclePersistent)
		j.h.users.add(dir, vol)
	}
	if err := r.write(dir); err != nil {
		return err
	}
	if !j.v.Block {
		return nil
	}
	return link(j.target, j.h.layout.Volume(j.v.PodUID, j.v.ID))
}

// link makes a link to target at path, unless it is there.
func link(target, path string) error {
	if to, err := os.Readlink(path); err == nil && to == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !notThere(err) {
		return err
	}
	return os.Symlink(target, path)
}

// forget undoes what a volume that its driver has refused for good left: there is
// nothing to unpublish, and the driver may be away when the pod goes.
func (j *job) forget(staging string, err error) error {
	if !final(err) || j.again || staging != "" || removeTarget(j.target) != nil {
		return nil
	}
	return j.h.removeNotes(j.v.PodUID, j.v.ID)
}

// readOnlyNote ends the mark of a volume that containers may only read.
const readOnlyNote = "\nro"

// mark says that the pod has its volume, and by which name.
func (j *job) mark() error {
	path := j.h.layout.Ready(j.v.PodUID, j.v.ID)
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	note := j.v.Name
	if j.v.ReadOnly {
		note += readOnlyNote
	}
	if err := atomicfile.Write(path, []byte(note), 0o600); err != nil {
		return err
	}
	j.h.note(j.target, true)
	return nil
}

// stage has a volume staged for all pods, unless this process saw that done.
func (j *job) stage(ctx context.Context, vol volume, dir string) error {
	h := j.h
	h.mu.Lock()
	done := h.mu.staged[dir]
	h.mu.Unlock()
	if done {
		return nil
	}
	secrets, err := h.secrets(ctx, j.v, j.v.CSI.StageSecret)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	if r := (record{Handle: vol.handle, Driver: vol.driver}); !j.v.Block {
		if err := r.write(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	err = h.call(ctx, j.d, "NodeStageVolume", func(ctx context.Context, c spec.NodeClient) error {
		_, err := c.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
			VolumeId: vol.handle, PublishContext: j.published, StagingTargetPath: dir,
			VolumeCapability: j.d.capability(j.v), Secrets: secrets, VolumeContext: j.v.CSI.Context,
		})
		return err
	})
	if err != nil {
		return err
	}
	if err := j.growStaged(ctx, vol, dir); err != nil {
		return err
	}
	h.mu.Lock()
	h.mu.staged[dir] = true
	h.mu.Unlock()
	return nil
}

// publish has the driver put the volume where the pod finds it.
func (j *job) publish(ctx context.Context, staging string) error {
	secrets, err := j.h.secrets(ctx, j.v, j.v.CSI.PublishSecret)
	if err != nil {
		return err
	}
	about, err := j.h.context(ctx, j.v, j.want, secrets)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(j.target), dirMode); err != nil {
		return err
	}
	return j.h.call(ctx, j.d, "NodePublishVolume", func(ctx context.Context, c spec.NodeClient) error {
		_, err := c.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{
			VolumeId: j.v.CSI.Handle, PublishContext: j.published, StagingTargetPath: staging, TargetPath: j.target,
			VolumeCapability: j.d.capability(j.v), Readonly: j.v.ReadOnly, Secrets: secrets, VolumeContext: about,
		})
		return err
	})
}

// secrets reads what a driver is to know. It is empty, not nil, without a reference.
func (h *Host) secrets(ctx context.Context, v *podvolumes.Volume, ref *v1.SecretReference) (map[string]string, error) {
	values := map[string]string{}
	if ref == nil {
		return values, nil
	}
	secret, err := h.cfg.Objects.GetSecret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, &podvolumes.WaitingError{Ref: podvolumes.Ref{Kind: podvolumes.RefSecret, Namespace: ref.Namespace, Name: ref.Name}, Volume: v.Name, Err: err}
	}
	for key, value := range secret.Data {
		values[key] = string(value)
	}
	return values, nil
}

// checkNames refuses names that would lead out of their folders.
func checkNames(names ...string) error {
	for _, name := range names {
		if name == "" || name == "." || name == ".." || filepath.Base(name) != name {
			return fmt.Errorf("%q is no name of a folder", name)
		}
	}
	return nil
}

package csi

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// recordName is the file that says whose a volume is.
const recordName = "vol_data.json"

// layout is where upstream's kubelet has the volumes of drivers. That of a
// filesystem is published below its pod's folder, with a record for each pod. That
// of a raw device is published below the plugins' folder, with one record for all
// pods; each has a link to what is published for it.
type layout struct{ podvolumes.Layout }

// target is where a driver publishes a volume to a pod. The driver makes it.
func (l layout) target(uid types.UID, id podvolumes.ID) string {
	if id.Block {
		return filepath.Join(l.devices(), "publish", id.Dir, string(uid))
	}
	return filepath.Join(l.Volume(uid, id), "mount")
}

// place is what containers get.
func (l layout) place(uid types.UID, id podvolumes.ID) string {
	if id.Block {
		return l.Volume(uid, id)
	}
	return l.target(uid, id)
}

// record is the folder with the record of a pod's volume.
func (l layout) record(uid types.UID, id podvolumes.ID) string {
	if id.Block {
		return filepath.Join(l.devices(), id.Dir, "data")
	}
	return l.Volume(uid, id)
}

func (l layout) devices() string { return filepath.Join(l.plugin(), "volumeDevices") }

func (l layout) plugin() string {
	return filepath.Join(string(l.Layout), "plugins", podvolumes.CSIPlugin)
}

// staging is where a driver stages a volume for all pods.
func (l layout) staging(v volume, id podvolumes.ID) string {
	if id.Block {
		return filepath.Join(l.devices(), "staging", id.Dir)
	}
	return filepath.Join(l.plugin(), v.driver, podvolumes.StagedCSI(v.handle), "globalmount")
}

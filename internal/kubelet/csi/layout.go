package csi

import (
	"path/filepath"
	"strings"

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

// owner returns whose volume is at a path that place gave.
func (l layout) owner(path string) (uid types.UID, id podvolumes.ID, ok bool) {
	below, ok := strings.CutPrefix(path, l.Pods()+"/")
	parts := strings.Split(below, "/")
	if !ok || len(parts) < 4 || parts[2] != string(podvolumes.CSI) {
		return "", podvolumes.ID{}, false
	}
	uid, id = types.UID(parts[0]), podvolumes.ID{Kind: podvolumes.CSI, Dir: parts[3], Block: parts[1] == "volumeDevices"}
	return uid, id, l.place(uid, id) == path
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

package csi

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// recordName is the file that says whose a volume is.
const recordName = "vol_data.json"

// layout is where upstream's kubelet has the volumes of drivers.
type layout struct{ podvolumes.Layout }

// target is where a driver publishes a volume to a pod. The driver makes it.
func (l layout) target(uid types.UID, id podvolumes.ID) string {
	return filepath.Join(l.Volume(uid, id), "mount")
}

func (l layout) plugin() string {
	return filepath.Join(string(l.Layout), "plugins", podvolumes.CSIPlugin)
}

// staging is where a driver stages a volume for all pods.
func (l layout) staging(v volume) string {
	return filepath.Join(l.plugin(), v.driver, podvolumes.StagedCSI(v.handle), "globalmount")
}

package csi

import (
	"os"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// Found completes what was found of a volume on disk, whoever made it: where it
// is, by which name its pod has it, and whether the pod can go on with it.
func (h *Host) Found(f podvolumes.Found) podvolumes.Found {
	f.Path, f.Name, f.Complete = h.layout.place(f.PodUID, f.ID), "", false
	r, err := readRecord(h.layout.record(f.PodUID, f.ID))
	if err != nil {
		return f // TearDown tells why
	}
	if r.ephemeral() {
		f.Name = f.Dir
	} else {
		f.PV = r.Spec
		if h.Attaches(r.Driver) {
			f.InUse = podvolumes.CSIUniqueName(r.Driver, r.Handle)
		}
	}
	mark, err := os.ReadFile(h.layout.Ready(f.PodUID, f.ID))
	if err != nil {
		return f // not all was done, or upstream did it
	}
	f.Name, f.ReadOnly = strings.CutSuffix(string(mark), readOnlyNote)
	isMount, err := mounted(h.layout.target(f.PodUID, f.ID))
	f.Complete = err == nil && isMount
	return f
}

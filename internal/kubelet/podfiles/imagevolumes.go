package podfiles

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// firstWithImageVolumes is the first containerd that mounts images.
const firstWithImageVolumes = "2.1"

// MountsImages returns an error if the runtime is known to have no volumes made of
// images: it would take the mount for one of no folder, and complain of that.
func (n *Node) MountsImages() error {
	text, ok := strings.CutPrefix(n.RuntimeVersion, "containerd://")
	if !ok {
		return nil
	}
	v, err := version.ParseGeneric(text)
	if err != nil || v.AtLeast(version.MustParseGeneric(firstWithImageVolumes)) {
		return nil
	}
	return fmt.Errorf("this node's container runtime, containerd %s, cannot mount an image as a volume: it can from %s on", text, firstWithImageVolumes)
}

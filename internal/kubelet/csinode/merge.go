package csinode

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// nodeIDs is the Node's annotation with the drivers' names for it, as JSON.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// merge enters the drivers into a CSINode, takes out those that are nil, and
// reports whether that changed it.
func merge(node *storagev1.CSINode, drivers map[string]*Driver) (changed bool) {
	before := node.Spec.DeepCopy()
	if node.Spec.Drivers == nil {
		node.Spec.Drivers = []storagev1.CSINodeDriver{} // the API wants a list
	}
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		i := slices.IndexFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name })
		switch d := drivers[name]; {
		case d == nil && i >= 0:
			node.Spec.Drivers = slices.Delete(node.Spec.Drivers, i, i+1)
		case d == nil:
		case i >= 0:
			node.Spec.Drivers[i] = d.entry()
		default:
			node.Spec.Drivers = append(node.Spec.Drivers, d.entry())
		}
	}
	return !equality.Semantic.DeepEqual(before, &node.Spec)
}

// entry is how a CSINode has a driver. A limit that is negative is none.
func (d *Driver) entry() storagev1.CSINodeDriver {
	entry := storagev1.CSINodeDriver{Name: d.Name, NodeID: d.NodeID, TopologyKeys: slices.Sorted(maps.Keys(d.Topology))}
	if d.MaxVolumes > 0 {
		count := int32(min(d.MaxVolumes, math.MaxInt32))
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return entry
}

// ownedBy reports whether a CSINode is of this very Node.
func ownedBy(c *storagev1.CSINode, node *v1.Node) bool {
	for _, owner := range c.OwnerReferences {
		if owner.Kind == "Node" && owner.Name == node.Name && owner.UID == node.UID {
			return true
		}
	}
	return false
}

// nodePatch returns the merge patch that makes the Node say what the drivers
// call it and which topology they see; nil if it does. Labels of a driver that
// is gone stay, as upstream leaves them: another may have them too. refused are
// the drivers whose labels contradict those that the Node has.
func nodePatch(node *v1.Node, drivers map[string]*Driver) (patch []byte, refused map[string]error, err error) {
	ids := map[string]string{}
	if text := node.Annotations[nodeIDs]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return nil, nil, fmt.Errorf("annotation %s of Node %s cannot be read; remove it: %w", nodeIDs, node.Name, err)
		}
	}
	before, labels := maps.Clone(ids), map[string]string{}
	refused = map[string]error{}
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		d := drivers[name]
		if d == nil {
			delete(ids, name)
			continue
		}
		if err := collides(node.Labels, labels, d); err != nil {
			refused[name] = err
			continue
		}
		ids[name] = d.NodeID
		for key, value := range d.Topology {
			if node.Labels[key] != value {
				labels[key] = value
			}
		}
	}
	metadata := map[string]any{}
	if !maps.Equal(before, ids) {
		var value any // null takes the annotation away
		if len(ids) > 0 {
			text, err := json.Marshal(ids)
			if err != nil {
				return nil, nil, fmt.Errorf("encode annotation: %w", err)
			}
			value = string(text)
		}
		metadata["annotations"] = map[string]any{nodeIDs: value}
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if len(metadata) == 0 {
		return nil, refused, nil
	}
	metadata["uid"] = node.UID
	// Nobody else may have changed the annotation meanwhile.
	metadata["resourceVersion"] = node.ResourceVersion
	patch, err = json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, refused, nil
}

// collides says which label of a driver's topology contradicts another's or the
// Node's own.
func collides(have, next map[string]string, d *Driver) error {
	for _, key := range slices.Sorted(maps.Keys(d.Topology)) {
		for _, labels := range []map[string]string{have, next} {
			if value, ok := labels[key]; ok && value != d.Topology[key] {
				return fmt.Errorf("CSI driver %s says that the node has %s=%s, and its label says %s: the driver is not published", d.Name, key, d.Topology[key], value)
			}
		}
	}
	return nil
}

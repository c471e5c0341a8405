package kubelet

import "github.com/holdfast-dev/holdfast/internal/kubelet/fault"

// Faults returns what is wrong now, by object: with the node, with what is read
// from the API, and with pods beyond what their status says.
func (k *Kubelet) Faults() []fault.Fault {
	return fault.Join(
		k.nodeFaults(), k.api.Faults(), k.objects.Faults(),
		k.loop.Faults(), k.workers.Faults(), k.volumes.Faults(), k.plugins.Faults(), k.csiNode.Faults(), k.mirrors.Faults(), k.checkpoint.Faults(),
	)
}

// nodeFaults returns what keeps the node from running pods, or soon will.
func (k *Kubelet) nodeFaults() []fault.Fault {
	var faults []fault.Fault
	for _, err := range []error{k.node.RuntimeErr(), k.node.NetworkErr(), k.pleg.Healthy(), k.loop.Healthy(), k.images.Err(), k.shutdown.Fault()} {
		if err != nil {
			faults = append(faults, fault.Fault{Object: "Node " + k.cfg.NodeName, Message: err.Error()})
		}
	}
	for _, text := range k.evictions.Faults() {
		faults = append(faults, fault.Fault{Object: "Node " + k.cfg.NodeName, Message: text})
	}
	if k.node.Node() == nil {
		faults = append(faults, fault.Fault{Object: "Node " + k.cfg.NodeName, Message: errNotRegistered.Error()})
	}
	return faults
}

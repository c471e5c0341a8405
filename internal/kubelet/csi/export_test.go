package csi

import "time"

// Asked says when a driver was last asked what it says of this node.
func (h *Host) Asked(name string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	again := *h.mu.drivers[name]
	again.asked = at
	h.mu.drivers[name] = &again
}

package node

// UserNamespaceSettings are upstream's UserNamespaces.
type UserNamespaceSettings struct {
	// IDsPerPod is how many user and group IDs a pod with hostUsers: false gets,
	// a multiple of 65536. Default 65536. Pods that run keep what they have.
	IDsPerPod *int64 `json:"idsPerPod,omitempty"`
}

// perPod returns 0 for the default.
func (u UserNamespaceSettings) perPod() uint32 {
	if u.IDsPerPod == nil {
		return 0
	}
	return uint32(*u.IDsPerPod) //nolint:gosec // validated
}

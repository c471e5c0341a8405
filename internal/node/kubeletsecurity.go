package node

import (
	"fmt"
	"math"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podadmit"
	"github.com/holdfast-dev/holdfast/internal/kubelet/userids"
)

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

// validateSecurity returns what is wrong with the settings of pods' security.
func (k *KubeletSettings) validateSecurity() []error {
	var errs []error
	if err := podadmit.CheckSysctls(k.AllowedUnsafeSysctls); err != nil {
		errs = append(errs, fmt.Errorf("kubelet.allowedUnsafeSysctls: %w", err))
	}
	if n := k.UserNamespaces.IDsPerPod; n != nil && (*n < userids.Unit || *n%userids.Unit != 0 || *n > math.MaxUint32) {
		errs = append(errs, fmt.Errorf("kubelet.userNamespaces.idsPerPod %d must be a multiple of %d, and less than 1<<32", *n, userids.Unit))
	}
	return errs
}

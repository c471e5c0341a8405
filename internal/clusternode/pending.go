package clusternode

import (
	"errors"
	"fmt"
	"reflect"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// pending refuses what the configuration may hold and this node does not do: nothing
// is accepted and ignored.
func pending(k *kubeletconfig.KubeletConfiguration) error {
	var errs []error
	for _, field := range []struct {
		name        string
		is, usually any
	}{
		{"tlsCipherSuites", len(k.TLSCipherSuites), 0},
		{"tlsCurvePreferences", len(k.TLSCurvePreferences), 0},
		{"tlsMinVersion", k.TLSMinVersion, ""},
		{"rotateCertificates", k.RotateCertificates, false},
		{"serverTLSBootstrap", k.ServerTLSBootstrap, false},
	} {
		if !reflect.DeepEqual(field.is, field.usually) {
			errs = append(errs, fmt.Errorf("%s is not possible with this version: leave it out", field.name))
		}
	}
	return errors.Join(errs...)
}

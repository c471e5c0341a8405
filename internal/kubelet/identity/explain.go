package identity

import (
	"crypto/x509"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// explain says in the words of an operator why a client certificate could not be
// asked for; good is whether it was asked for by the one in use.
func (i *Identity) explain(good bool, err error) error {
	var authority x509.UnknownAuthorityError
	switch {
	case good || err == nil:
		return err
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API does not take the credentials in %s, a token may have expired: make another (kubeadm token create) and write it into that file, which is read at each try: %w", i.cfg.Bootstrap, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("whoever %s names may not ask for certificates: give the group system:bootstrappers the ClusterRole system:node-bootstrapper (kubectl create clusterrolebinding node-bootstrap --clusterrole=system:node-bootstrapper --group=system:bootstrappers): %w", i.cfg.Bootstrap, err)
	case errors.As(err, &authority):
		return fmt.Errorf("the API's certificate is not of the authority in %s: write the cluster's into certificate-authority-data: %w", i.cfg.Bootstrap, err)
	}
	return err
}

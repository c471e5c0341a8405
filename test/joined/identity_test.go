package joined_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/test/joined"
)

// TestIdentity has a node ask the real controllers for its certificates by a token,
// and renew both while a pod runs and somebody follows its log. Certificates live
// for a minute; should the machine be too slow for that, the node asks by the token
// again.
func TestIdentity(t *testing.T) {
	n := joined.Start(t, joined.Config{
		Options:           joined.Options{Bootstrap: true},
		ControllerManager: []string{"--cluster-signing-duration=1m"},
	})
	info, err := os.Stat(n.Instance.Path("kubelet.conf"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig that is written: %v, %v, want mode 0600", info, err)
	}
	n.Run(joined.Pod("web"))
	var client, server string // serial numbers
	n.Eventually("the node's API is served with a certificate of the cluster", func(ctx context.Context) (bool, error) {
		if err := approveServing(ctx, n); err != nil {
			return false, err
		}
		server, err = servingSerial(ctx, n)
		return err == nil, err
	})
	if client, err = clientSerial(n); err != nil {
		t.Fatal(err)
	}
	before := n.Running()

	ctx, cancel := context.WithCancel(t.Context())
	stream, err := n.Admin.CoreV1().Pods("default").GetLogs("web", &v1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	followed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, stream)
		followed <- err
	}()

	n.Eventually("both certificates are others", func(ctx context.Context) (bool, error) {
		if err := approveServing(ctx, n); err != nil {
			return false, err
		}
		nextClient, err := clientSerial(n)
		if err != nil {
			return false, err
		}
		nextServer, err := servingSerial(ctx, n)
		return err == nil && nextClient != client && nextServer != server, err
	})
	rotated := time.Now()
	n.Eventually("the node renews its lease after the rotation", func(ctx context.Context) (bool, error) {
		lease, err := n.Admin.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, n.Name, metav1.GetOptions{})
		return err == nil && lease.Spec.RenewTime.After(rotated), err
	})
	select {
	case err := <-followed:
		t.Errorf("the log that was followed over the rotation ended: %v", err)
	default:
	}
	cancel()
	_ = stream.Close() // cut off
	if after := n.Running(); after["default/web/main"] != before["default/web/main"] {
		t.Errorf("containers %v, before the rotation %v", after, before)
	}
	n.AwaitReady()
}

// approveServing approves what the node asks of the signer of serving certificates,
// as an administrator does.
func approveServing(ctx context.Context, n *joined.Node) error {
	requests := n.Admin.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range list.Items {
		if r.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(r.Status.Conditions) > 0 {
			continue
		}
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue, Reason: "Test", Message: "it is ours",
		}}
		if _, err := requests.UpdateApproval(ctx, r.Name, &r, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// servingSerial is of the certificate that the node's API is served with, which
// must be the cluster's, for the node's address.
func servingSerial(ctx context.Context, n *joined.Node) (string, error) {
	node, err := n.Admin.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(n.CA())
	at := node.Status.Addresses[0].Address
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: at}}).
		DialContext(ctx, "tcp", net.JoinHostPort(at, strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// clientSerial is of the certificate that the node's kubeconfig leads to.
func clientSerial(n *joined.Node) (string, error) {
	data, err := os.ReadFile(n.Instance.Path("kubelet", "pki", "kubelet-client-current.pem"))
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return "", fmt.Errorf("no PEM in %q", data)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	return cert.SerialNumber.String(), nil
}

package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// TestPodResources asks the node, as an agent on its machine does, which pods run
// there.
func TestPodResources(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importBusybox()
	n.busyboxPod("listed", "sleep 1000", "", "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	list, err := n.podResources().List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.GetPodResources() {
		if p.GetName() == "listed" && len(p.GetContainers()) == 1 {
			return
		}
	}
	t.Errorf("the pod is not listed with its container: %v", list)
}

// podResources returns a client of the node's API of pod resources, which waits until
// that is served.
func (n *node) podResources() podresourcesv1.PodResourcesListerClient {
	n.t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(n.root, "kubelet", "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			n.t.Error(err)
		}
	})
	return podresourcesv1.NewPodResourcesListerClient(conn)
}

package podsync

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/userids"
)

// TestUsers holds that a pod with users of its own has the same ones in its
// sandbox, its containers and what they mount, and does not start where the
// runtime cannot do that.
func TestUsers(t *testing.T) {
	can := false
	w := newWorld(t, func(c *Config) {
		node := c.Node()
		c.Node = func() *podfiles.Node {
			changed := *node
			changed.Handlers = []v1.NodeRuntimeHandler{{Name: "", Features: &v1.NodeRuntimeHandlerFeatures{UserNamespaces: &can}}}
			return &changed
		}
	})
	w.cfg.Users = userids.New(userids.Config{Dir: w.root + "/kubelet"})
	w.pod.Spec.HostUsers = new(false)
	if err := w.sync(); err == nil {
		t.Error("got no error")
	}
	w.wantRunning("")
	w.wantEvents("Warning FailedCreatePodSandBox Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces")

	can = true
	w.mustSync()
	w.wantRunning("main")
	config := w.fake.Config(w.newest("main").ID)
	ids := []*runtimeapi.IDMapping{{HostId: 65536, ContainerId: 0, Length: 65536}}
	want := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
	if diff := cmp.Diff(config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions(), want, protocmp.Transform()); diff != "" {
		t.Errorf("the container's users: got -, want +:\n%s", diff)
	}
	if n := len(config.GetMounts()); n != 2 {
		t.Errorf("%d mounts, want the hosts file and the termination message", n)
	}
	for _, m := range config.GetMounts() {
		if diff := cmp.Diff([][]*runtimeapi.IDMapping{m.GetUidMappings(), m.GetGidMappings()}, [][]*runtimeapi.IDMapping{ids, ids}, protocmp.Transform()); diff != "" {
			t.Errorf("owners in %s: got -, want +:\n%s", m.GetContainerPath(), diff)
		}
	}
	sandbox := w.inspect().Sandboxes[0].GetLinux().GetNamespaces().GetOptions().GetUsernsOptions()
	if diff := cmp.Diff(sandbox, want, protocmp.Transform()); diff != "" {
		t.Errorf("the sandbox's users: got -, want +:\n%s", diff)
	}
}

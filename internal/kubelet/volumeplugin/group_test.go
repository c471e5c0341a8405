package volumeplugin

import (
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// The pod whose volume takes long learns of it by an event of its own.
func TestTellSlow(t *testing.T) {
	events := record.NewFakeRecorder(1)
	events.IncludeObject = true
	h := New(Config{Dir: "/none", Log: slog.New(slog.DiscardHandler), Events: events})
	gid := int64(2000)
	v := volume(podvolumes.Local)
	v.Pod, v.PodUID, v.FSGroup = types.NamespacedName{Namespace: "ns", Name: "web"}, uid, &gid
	h.tellSlow(&v, 123456)
	const want = v1.EventTypeWarning + ` VolumePermissionChangeInProgress giving the files of volume "data" to fsGroup 2000 takes long, 123456 files so far; ` +
		"with fsGroupChangePolicy OnRootMismatch only the top is looked at involvedObject{kind=Pod,apiVersion=v1}"
	if got := <-events.Events; got != want {
		t.Errorf("event:\n%s\nwant:\n%s", got, want)
	}
}

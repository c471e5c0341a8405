package kubelet

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpoint"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointer"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// A Checkpoint says how the pods of the API are kept for a start without it.
type Checkpoint struct {
	Dir string // absolute; made with mode 0700
	// KeyFile holds the key that encrypts what is kept: 32 bytes in base64, mode
	// 0600. Empty: it is not encrypted. While the file cannot be used, nothing is
	// kept and nothing is given back.
	KeyFile string
	// MaxAge is for how long after the last answer of the API pods that do not run
	// are started without it. Default 7 days; negative: for ever.
	MaxAge time.Duration
}

// wireCheckpoint makes what keeps pods over an absence of the API.
func (k *Kubelet) wireCheckpoint() {
	if k.cfg.Checkpoint == nil {
		return
	}
	k.checkpoint = checkpointer.New(checkpointer.Config{
		Folder:  checkpoint.New(checkpoint.Config{Dir: k.cfg.Checkpoint.Dir, KeyFile: k.cfg.Checkpoint.KeyFile}),
		Objects: keptObjects{k}, Pods: func() ([]*v1.Pod, bool) { return k.loop.Admitted() },
		Runs: k.runs, Listed: k.listed, Node: k.node.Node, Answered: k.node.Answered,
		MaxAge: k.cfg.Checkpoint.MaxAge, Log: k.cfg.Log.With("part", "checkpoint"),
	})
}

// runs reports whether the runtime runs anything of a pod.
func (k *Kubelet) runs(uid types.UID) bool {
	status, err := k.cache.Get(uid)
	return err == nil && status.Running()
}

// listed reports whether runs can tell.
func (k *Kubelet) listed() bool { return k.pleg.Healthy() == nil }

// restore returns what the source of the API asks for when the API does not
// answer, nil if nothing is kept.
func (k *Kubelet) restore() func(context.Context) []*v1.Pod {
	if k.checkpoint == nil {
		return nil
	}
	return k.checkpoint.Restore
}

// keptObjects gives the checkpoint the objects of a store that is made after it,
// as each asks the other.
type keptObjects struct{ k *Kubelet }

func (o keptObjects) Seen() map[podvolumes.Ref]runtime.Object { return o.k.objects.Seen() }

func (o keptObjects) Tokens() map[checkpointfile.Key]*authenticationv1.TokenRequest {
	return o.k.objects.Tokens()
}

func (o keptObjects) SeenServices(namespace string) (list []*v1.Service, edition int64, ok bool) {
	return o.k.objects.SeenServices(namespace)
}

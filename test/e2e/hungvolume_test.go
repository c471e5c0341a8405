package e2e

import (
	"fmt"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/hangingfs"
)

// TestHungVolume has a volume whose server does not answer: status names it,
// other pods come and go, the node goes down and up, and the pod starts once
// there is an answer.
func TestHungVolume(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root")
	dir := t.TempDir()
	fs := hangingfs.Mount(t, dir)
	n := startNode(t)
	fs.Hang()
	n.write("hung.yaml", demoPod("hung", "serve", fmt.Sprintf(`    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, hostPath: {path: %s, type: Directory}}
`, dir)))
	n.eventually("status names it", func() error {
		out, _ := n.try("status")
		return wants(out, "default/hung", `set up volume "data": it takes long`)
	})
	n.write("other.yaml", demoPod("other", "serve", ""))
	n.running("other-edge-1")
	n.holdfast("down")
	n.up()
	n.running("other-edge-1")
	fs.Answer()
	n.running("hung-edge-1")
}

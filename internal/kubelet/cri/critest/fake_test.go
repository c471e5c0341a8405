package critest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
)

func TestFake(t *testing.T) {
	fake := crifake.Start(t)
	fake.AddImage(demoImage)
	fake.SetStreamServer("http://127.0.0.1:1")
	fake.SetProgram("exits0", crifake.Program{Ends: &crifake.Exit{}})
	fake.SetProgram("exits7", crifake.Program{Ends: &crifake.Exit{Code: 7}})
	fake.SetProgram("says", crifake.Program{Ends: &crifake.Exit{}, Output: "first line\n"})
	fake.SetExec(func(_ string, cmd []string) crifake.Result {
		switch cmd[1] {
		case "echo":
			return crifake.Result{Stdout: cmd[2] + "\n"}
		case "exit":
			return crifake.Result{Code: 3}
		case "sleep":
			return crifake.Result{Takes: time.Hour}
		default:
			return crifake.Result{}
		}
	})
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	fake.Listen(t, socket)
	contract(t, subject{Runtime: cri.New(fake.Conn(), cri.Config{}), endpoint: "unix://" + socket, events: true})
}

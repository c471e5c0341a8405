package hoststats

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
)

const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
  eth0:1000 2 3 4 5 6 7 8 2000 10 11 12 13 14 15 16
 bad: x
`

func TestNetwork(t *testing.T) {
	host := fakeHost(t, map[string]string{"proc/self/net/dev": netDev, "proc/7/net/dev": ""})
	got, err := host.Network(0)
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v; want eth0 alone", got, err)
	}
	if e := got[0]; e.Name != "eth0" || *e.RxBytes != 1000 || *e.RxErrors != 3 || *e.TxBytes != 2000 || *e.TxErrors != 11 {
		t.Errorf("%s: %d in, %d wrong, %d out, %d wrong", e.Name, *e.RxBytes, *e.RxErrors, *e.TxBytes, *e.TxErrors)
	}
	if got, err := host.Network(7); err != nil || len(got) != 0 {
		t.Errorf("another process: %v, %v", got, err)
	}
	if _, err := host.Network(8); err == nil {
		t.Error("a process that is gone has a network")
	}
	if _, err := New("/").Network(os.Getpid()); err != nil {
		t.Error(err)
	}
}

func TestInterfaces(t *testing.T) {
	got, err := fakeHost(t, map[string]string{"proc/7/net/dev": netDev}).Interfaces(7)
	want := []cadvisormetrics.Interface{{
		Name: "eth0", Received: cadvisormetrics.Traffic{Bytes: 1000, Packets: 2, Errors: 3, Dropped: 4}, Sent: cadvisormetrics.Traffic{Bytes: 2000, Packets: 10, Errors: 11, Dropped: 12},
	}}
	if diff := cmp.Diff(got, want); err != nil || diff != "" {
		t.Errorf("%v (-got +want):\n%s", err, diff)
	}
}

func TestBootTime(t *testing.T) {
	if got, err := fakeHost(t, map[string]string{"proc/stat": "cpu 1\nbtime 1700000000\n"}).BootTime(); err != nil || got.Unix() != 1_700_000_000 {
		t.Errorf("%v, %v", got, err)
	}
	for _, content := range []string{"", "btime x\n"} {
		if _, err := fakeHost(t, map[string]string{"proc/stat": content}).BootTime(); err == nil {
			t.Errorf("%q: no error", content)
		}
	}
	if got, err := New("/").BootTime(); err != nil || got.After(time.Now()) {
		t.Errorf("this machine: %v, %v", got, err)
	}
}

func FuzzParseInterfaces(f *testing.F) {
	f.Add([]byte(netDev))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, i := range parseInterfaces(content) {
			if i.Name == "lo" || strings.ContainsAny(i.Name, ":\n") {
				t.Errorf("%+v", i)
			}
		}
	})
}

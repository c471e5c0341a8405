package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDisks(t *testing.T) {
	want := []Disk{
		{MiB: 1, FS: "ext4", Mount: "/a b", Options: "prjquota,noatime", MkfsArgs: []string{"-O", "quota,project"}},
		{MiB: 2},
	}
	parameter, err := DisksParameter(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseDisks("quiet " + parameter + " panic=1\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
	if got, err := ParseDisks("quiet"); got != nil || err != nil {
		t.Errorf("without the parameter: %v, %v", got, err)
	}
	if _, err := ParseDisks("guest.disks=???"); err == nil {
		t.Error("a damaged parameter was taken")
	}
}

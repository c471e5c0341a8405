package devices

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func sample(tb testing.TB) record {
	tb.Helper()
	response, err := proto.Marshal(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": "a"}})
	if err != nil {
		tb.Fatal(err)
	}
	return record{
		Resources: []string{"example.com/disk"},
		Given:     []givenRecord{{PodUID: "u", Container: "c", Resource: "example.com/disk", Devices: map[string][]int64{"a": {0, 1}}, Response: response}},
	}
}

func TestRecord(t *testing.T) {
	want := sample(t)
	content, err := encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(content)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	for i := range content { // wherever it was cut, and whatever was changed
		if _, err := decode(content[:i]); err == nil {
			t.Errorf("the first %d of %d bytes are taken for a record", i, len(content))
		}
	}
	if _, err := decode(bytes.Replace(content, []byte(`"u"`), []byte(`"v"`), 1)); err == nil {
		t.Error("a record with another pod's name is taken for what was written")
	}
}

func FuzzDecode(f *testing.F) {
	content, err := encode(sample(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte(`{"version":1,"checksum":"","data":null}`))
	f.Add([]byte(`{"Data":{"PodDeviceEntries":null},"Checksum":1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := decode(content)
		if err != nil {
			return
		}
		r.assignments()
		again, err := encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(again); err != nil {
			t.Errorf("what was read cannot be written and read again: %v", err)
		}
	})
}

package csi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"specVolID":"pv","volumeHandle":"h","driverName":"d","nodeName":"n","attachmentID":"csi-1","volumeLifecycleMode":"Persistent"}`))
	f.Add([]byte(`{"volumeHandle":"h","driverName":"../d"}`))
	f.Add([]byte(`{"volumeHandle":"","driverName":"d"}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data)
		if err != nil {
			return
		}
		if !isName(r.Driver) || r.Handle == "" {
			t.Fatalf("%+v was taken", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		same, err := parseRecord(again)
		if diff := cmp.Diff(r, same); err != nil || diff != "" {
			t.Errorf("%v (-first +again):\n%s", err, diff)
		}
	})
}

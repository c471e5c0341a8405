package csi_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

// A driver is asked again how many volumes fit as often as its CSIDriver says, and not
// without.
func TestRefresh(t *testing.T) {
	w := start(t, func(c *csidriver.Config) { c.MaxVolumes = 12 })
	asked := func(times int, volumes int64) {
		t.Helper()
		if got := len(w.driver.Calls("NodeGetInfo")); got != times {
			t.Errorf("asked %d times, want %d", got, times)
		}
		if got := w.host.Drivers()[0].MaxVolumes; got != volumes {
			t.Errorf("the node takes %d volumes, want %d", got, volumes)
		}
	}
	if next := w.host.Refresh(t.Context()); next != time.Minute {
		t.Errorf("it is not asked again, and looked at in %s", next)
	}
	asked(0, 12)
	w.api.set(func(s *storagev1.CSIDriverSpec) { s.NodeAllocatableUpdatePeriodSeconds = new(int64(1)) })
	w.driver.Limit(7)
	changed := w.changed
	next := w.host.Refresh(t.Context())
	if next <= 0 || next > time.Second {
		t.Errorf("it is asked in %s", next)
	}
	time.Sleep(next)
	w.host.Refresh(t.Context())
	asked(1, 7)
	if w.changed != changed+1 {
		t.Errorf("told %d times", w.changed-changed)
	}
	w.driver.Fail("NodeGetInfo", 1, errTrouble)
	w.driver.Limit(3)
	time.Sleep(time.Second)
	if next := w.host.Refresh(t.Context()); next != time.Second {
		t.Errorf("it is tried again in %s", next)
	}
	asked(2, 7)
}

// A volume that does not fit has the driver asked before its time, once a minute at
// most.
func TestRefreshExhausted(t *testing.T) {
	w := start(t, nil)
	w.api.set(func(s *storagev1.CSIDriverSpec) {
		s.AttachRequired, s.NodeAllocatableUpdatePeriodSeconds = nil, new(int64(3600))
	})
	name := podvolumes.CSIAttachment("handle-of-pv", driverName, "n1")
	attachment := &storagev1.VolumeAttachment{}
	attachment.Status.AttachError = &storagev1.VolumeError{Message: "no free slot", ErrorCode: new(int32(codes.ResourceExhausted))}
	w.api.mu.Lock()
	w.api.attachments = map[string]*storagev1.VolumeAttachment{name: attachment}
	w.api.mu.Unlock()
	for _, tt := range []struct {
		asked time.Duration // ago
		times int
	}{{0, 0}, {2 * time.Minute, 1}} {
		w.host.Asked(driverName, time.Now().Add(-tt.asked))
		_, err := w.host.SetUp(t.Context(), persistent("a", "pv"))
		wantErr(t, err, "no free slot")
		w.host.Refresh(t.Context())
		if got := len(w.driver.Calls("NodeGetInfo")); got != tt.times {
			t.Errorf("%s after it was asked: asked %d times, want %d", tt.asked, got, tt.times)
		}
	}
}

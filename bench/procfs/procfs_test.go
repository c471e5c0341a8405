package procfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestProc(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"1": "1500 20 3\n", "2": "500 0 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	threads := []string{filepath.Join(dir, "1"), filepath.Join(dir, "ended"), filepath.Join(dir, "2")}
	if got, err := cpuTime(threads); err != nil || got != 2*time.Microsecond {
		t.Errorf("cpuTime: got %v, %v, want 2µs", got, err)
	}
	if err := os.WriteFile(threads[0], []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cpuTime(threads); err == nil {
		t.Error("cpuTime of no number: no error")
	}
	if got, err := numberField("rchar: 1\nwrite_bytes: 4096\n", "write_bytes:"); err != nil || got != 4096 {
		t.Errorf("numberField: got %d, %v, want 4096", got, err)
	}
	status := "Name:\tx\nVmRSS:\t    200 kB\nRssAnon:\t    100 kB\n"
	if got, err := kibField(status, "RssAnon:"); err != nil || got != 100<<10 {
		t.Errorf("kibField: got %d, %v, want %d", got, err, 100<<10)
	}
	if _, err := kibField(status, "RssFile:"); err == nil {
		t.Error("kibField of a field that is not there: no error")
	}
}

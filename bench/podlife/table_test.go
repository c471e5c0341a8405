package podlife

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/bench/procfs"
)

func TestTable(t *testing.T) {
	ours := &Life{
		Start: Series{100 * time.Millisecond}, Fill: [2]time.Duration{5 * time.Second, 10 * time.Second}, Full: procfs.Usage{RSS: 50 << 20},
		Update: Series{10 * time.Millisecond, 30 * time.Millisecond},
	}
	upstream := &Life{
		Start: Series{400 * time.Millisecond}, Fill: [2]time.Duration{10 * time.Second, 10 * time.Second}, Full: procfs.Usage{RSS: 100 << 20},
		Update: Series{30 * time.Second, 60 * time.Second},
	}
	for _, c := range []struct {
		name     string
		upstream *Life
		want     []string
	}{
		{"alone", nil, []string{
			"| create → Running, one at a time, p50 | 100 ms |\n",
			"| 0 → 50 pods, pods a second | 10.0 |\n",
			"| resident memory of the agent, 100 pods | 50 MiB |\n",
		}},
		{"beside upstream", upstream, []string{
			"| create → Running, one at a time, p50 | 100 ms | 400 ms | 0.25 |\n",
			"| 0 → 50 pods, pods a second | 10.0 | 5.0 | 2.00 |\n",
			"| resident memory of the agent, 100 pods | 50 MiB | 100 MiB | 0.50 |\n",
			"| ConfigMap of 50 pods changed → file changed in a pod, p99 | 30 ms | 60000 ms | 0.0005 |\n",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Table(ours, c.upstream)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("no line %q in:\n%s", want, got)
				}
			}
		})
	}
}

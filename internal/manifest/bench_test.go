package manifest

import (
	"strings"
	"testing"
)

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		New()
	}
}

func BenchmarkParse(b *testing.B) {
	p := New()
	one, hundred := []byte(webPod), []byte(strings.Repeat(webPod+"---\n", 100))
	for name, data := range map[string][]byte{"1": one, "100": hundred} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r := p.Parse("a.yaml", data); len(r.Faults) > 0 {
					b.Fatal(r.Faults)
				}
			}
		})
	}
}

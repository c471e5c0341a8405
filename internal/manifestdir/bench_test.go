package manifestdir

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkRead reads folders of many files: as they were, and with one edited.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{100, 5000} {
		dir := b.TempDir()
		for i := range n {
			path := filepath.Join(dir, fmt.Sprintf("%d.yaml", i))
			if err := os.WriteFile(path, []byte(configMap(fmt.Sprintf("c%d", i), "1")), 0o600); err != nil {
				b.Fatal(err)
			}
			if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil { // young files are read again
				b.Fatal(err)
			}
		}
		d := New(Config{
			Dir: dir, Parser: parser, StateFile: filepath.Join(b.TempDir(), "state"),
			Log: slog.New(slog.DiscardHandler), Publish: func(context.Context, Set) {},
		})
		d.read(b.Context())
		b.Run(fmt.Sprintf("unchanged/%d", n), func(b *testing.B) {
			for b.Loop() {
				d.read(b.Context())
			}
		})
		b.Run(fmt.Sprintf("one changed/%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if err := os.WriteFile(filepath.Join(dir, "7.yaml"), []byte(configMap("c7", fmt.Sprint(i))), 0o600); err != nil {
					b.Fatal(err)
				}
				d.read(b.Context())
			}
		})
		b.Run(fmt.Sprintf("check for replaced folders/%d", n), func(b *testing.B) {
			for b.Loop() {
				d.watch.replaced()
			}
		})
		d.watch.close()
	}
}

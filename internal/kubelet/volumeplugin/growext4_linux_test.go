package volumeplugin

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func TestGrowExt4(t *testing.T) {
	testenv.Need(t, "sysresource")
	testGrow(t, "ext4")
}

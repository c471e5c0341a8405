package volumeplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// setUpHostPath checks that the path is of the type that the pod expects, and
// makes it where the type says so. Links are followed: the path is the host's.
func setUpHostPath(v *podvolumes.Volume) error {
	want := v.HostPathType
	if want == v1.HostPathUnset {
		return nil
	}
	info, err := os.Stat(v.HostPath)
	if errors.Is(err, fs.ErrNotExist) {
		switch want {
		case v1.HostPathDirectoryOrCreate:
			return os.MkdirAll(v.HostPath, 0o755)
		case v1.HostPathFileOrCreate:
			f, err := os.OpenFile(v.HostPath, os.O_CREATE|os.O_RDONLY, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		default: // all others must be there
		}
	}
	if err != nil {
		return fmt.Errorf("hostPath type %s: %w", want, err)
	}
	is, ok := typeChecks[want]
	switch {
	case !ok:
		return fmt.Errorf("%q is not a type of hostPath", want)
	case !is(info.Mode()):
		return fmt.Errorf("hostPath %s is not of type %s: it is a %s", v.HostPath, want, describe(info.Mode()))
	}
	return nil
}

var typeChecks = map[v1.HostPathType]func(fs.FileMode) bool{
	v1.HostPathDirectoryOrCreate: fs.FileMode.IsDir,
	v1.HostPathDirectory:         fs.FileMode.IsDir,
	v1.HostPathFileOrCreate:      fs.FileMode.IsRegular,
	v1.HostPathFile:              fs.FileMode.IsRegular,
	v1.HostPathSocket:            func(m fs.FileMode) bool { return m.Type() == fs.ModeSocket },
	v1.HostPathCharDev:           func(m fs.FileMode) bool { return m.Type() == fs.ModeDevice|fs.ModeCharDevice },
	v1.HostPathBlockDev:          func(m fs.FileMode) bool { return m.Type() == fs.ModeDevice },
}

func describe(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSocket:
		return "socket"
	case fs.ModeNamedPipe:
		return "named pipe"
	case fs.ModeDevice:
		return "block device"
	case fs.ModeDevice | fs.ModeCharDevice:
		return "character device"
	default:
		return "special file"
	}
}

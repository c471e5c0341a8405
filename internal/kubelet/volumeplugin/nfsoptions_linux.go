package volumeplugin

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// nfsOptions are mount options as the kernel takes them.
type nfsOptions struct {
	flags    uintptr
	data     []string // but for the version and the address
	versions []string // as options, to be tried in turn; "" is the one in data
	port     string   // by which the server is reached; empty: not known, or not by TCP
}

// mountFlags are the options that are the same for every filesystem, and whether
// they set their flag or clear it.
var mountFlags = map[string]struct {
	flag uintptr
	set  bool
}{
	"ro": {unix.MS_RDONLY, true}, "rw": {unix.MS_RDONLY, false},
	"nosuid": {unix.MS_NOSUID, true}, "suid": {unix.MS_NOSUID, false},
	"nodev": {unix.MS_NODEV, true}, "dev": {unix.MS_NODEV, false},
	"noexec": {unix.MS_NOEXEC, true}, "exec": {unix.MS_NOEXEC, false},
	"sync": {unix.MS_SYNCHRONOUS, true}, "async": {unix.MS_SYNCHRONOUS, false},
	"dirsync": {unix.MS_DIRSYNC, true},
	"noatime": {unix.MS_NOATIME, true}, "atime": {unix.MS_NOATIME, false},
	"nodiratime": {unix.MS_NODIRATIME, true}, "diratime": {unix.MS_NODIRATIME, false},
	"relatime": {unix.MS_RELATIME, true}, "norelatime": {unix.MS_RELATIME, false},
	"strictatime": {unix.MS_STRICTATIME, true},
}

// forPrograms are options that mount programs act on and do not pass on. How
// often to try is the volume manager's business here.
var forPrograms = []string{"defaults", "auto", "noauto", "user", "nouser", "users", "_netdev", "nofail", "bg", "fg", "retry"}

// nfsVersions are tried in turn where no option names one.
var nfsVersions = []string{"vers=4.2", "vers=4.1", "vers=4.0", "vers=3"}

// parseNFSOptions takes the mount options of a PersistentVolume apart.
func parseNFSOptions(list []string, readOnly bool) (nfsOptions, error) {
	o := nfsOptions{versions: nfsVersions, port: nfsPort}
	var version string
	own, udp := false, false // a port of its own; no connections
	for option := range strings.SplitSeq(strings.Join(list, ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(option), "=")
		f, general := mountFlags[name]
		switch {
		case name == "" || slices.Contains(forPrograms, name):
			continue
		case general && f.set:
			o.flags |= f.flag
			continue
		case general:
			o.flags &^= f.flag
			continue
		case name == "addr" || name == "clientaddr" || name == "mountaddr":
			return nfsOptions{}, fmt.Errorf("mountOptions: %s is the node's to say: nfs.server is what it is made of", name)
		case name == "vers" || name == "nfsvers":
			o.versions, version = []string{""}, value
		case name == "v3" || name == "v4" || name == "v4.0" || name == "v4.1" || name == "v4.2":
			o.versions, version = []string{""}, name[1:]
		case name == "port":
			own, o.port = true, value
		case name == "proto" && strings.HasPrefix(value, "udp") || name == "udp":
			udp = true
		}
		o.data = append(o.data, strings.TrimSpace(option))
	}
	if udp || o.port == "0" || version == "3" && !own { // version 3 may ask a portmapper
		o.port = ""
	}
	if readOnly {
		o.flags |= unix.MS_RDONLY
	}
	return o, nil
}

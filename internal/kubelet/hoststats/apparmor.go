package hoststats

import "os"

// AppArmor reports whether the kernel confines processes by AppArmor profiles.
func AppArmor() bool {
	content, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && len(content) > 0 && content[0] == 'Y'
}

package podfiles

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
)

// Hash returns the hash of the parts of a container whose change restarts it:
// its name and image. It is the upstream kubelet's value, so that a container
// that one of the two started is left alone by the other.
func Hash(c *v1.Container) string {
	picked, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil {
		panic(err) // a map of strings always encodes
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(picked))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

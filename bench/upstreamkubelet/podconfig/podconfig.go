// Command podconfig measures how full sets of pods become updates, beside
// upstream's pod configuration.
package main

import (
	"context"
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func main() {
	flag.String("page", "", "page to write the table into")
	flag.Parse()
	u := newUpstream(context.Background())
	u.send([]*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}})
	fmt.Println((<-u.updates).Op)
}

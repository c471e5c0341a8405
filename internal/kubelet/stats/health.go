package stats

import statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

// healthSummary is the Summary with the health of volumes, which upstream's type had up
// to 1.36. The rest is upstream's.
type healthSummary struct {
	Node *statsapi.NodeStats `json:"node"`
	Pods []healthPod         `json:"pods"`
}

type healthPod struct {
	*statsapi.PodStats
	Volumes []healthVolume `json:"volume,omitempty"` // in the place of PodStats' own
}

type healthVolume struct {
	*statsapi.VolumeStats
	Health *volumeHealth `json:"volumeHealthStats,omitempty"` // nil: nobody says
}

type volumeHealth struct {
	Abnormal bool `json:"abnormal"`
}

// withHealth returns the Summary of a collection with what drivers say of volumes.
func withHealth(made *Collection) *healthSummary {
	s := made.Summary
	out := &healthSummary{Node: &s.Node, Pods: make([]healthPod, len(s.Pods))}
	for i := range s.Pods {
		p := &s.Pods[i]
		volumes := make([]healthVolume, len(p.VolumeStats))
		for j := range p.VolumeStats {
			volumes[j].VolumeStats = &p.VolumeStats[j]
			if why := made.Volumes[i][j].Abnormal; why != nil {
				volumes[j].Health = &volumeHealth{Abnormal: *why != ""}
			}
		}
		out.Pods[i] = healthPod{p, volumes}
	}
	return out
}

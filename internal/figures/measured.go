package figures

import (
	"bytes"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// measuredSeries is our kubelet's series with a sample for each volume: its labels say
// how the volume was measured, its value is 1 if the figures are old.
const measuredSeries = "holdfast_volume_stale"

type volumeKey struct{ namespace, pod, volume string }

// measured is how a volume's figures came to be.
type measured struct {
	kind, method string
	stale        bool
}

// parseMeasured reads the series out of a kubelet's /metrics. The rest, which is most,
// is passed over; what cannot be read has no entries.
func parseMeasured(metrics []byte) map[volumeKey]measured {
	var own bytes.Buffer
	for line := range bytes.Lines(metrics) {
		if bytes.HasPrefix(line, []byte(measuredSeries+"{")) {
			own.Write(line)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&own)
	if err != nil {
		return nil
	}
	all := map[volumeKey]measured{}
	for _, m := range families[measuredSeries].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		all[volumeKey{labels["namespace"], labels["pod"], labels["volume"]}] = measured{
			kind: labels["source"], method: labels["method"], stale: m.GetUntyped().GetValue() != 0,
		}
	}
	return all
}

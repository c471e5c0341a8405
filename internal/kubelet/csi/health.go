package csi

import (
	"context"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// health asks a driver that can tell what is wrong with a pod's volume; empty: nothing;
// nil: that is not known.
func (h *Host) health(ctx context.Context, d *driver, r *record, uid types.UID, id podvolumes.ID) *string {
	if !d.can[spec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH] {
		return nil
	}
	var abnormal *string
	err := h.call(ctx, d, "NodeGetVolumeHealth", func(ctx context.Context, c spec.NodeClient) error {
		answer, err := c.NodeGetVolumeHealth(ctx, &spec.NodeGetVolumeHealthRequest{
			VolumeId: r.Handle, VolumePublishPath: h.layout.target(uid, id), StagingTargetPath: h.staged(d, r, id),
		})
		if err == nil {
			abnormal = new(describeHealth(answer.GetVolumeHealth().GetHealthStatuses()))
		}
		return err
	})
	if err != nil {
		h.cfg.Log.Debug("the health of a volume is not known", "podUID", uid, "volume", id.Dir, "err", err)
	}
	return abnormal
}

// healthWords are the API's words for what drivers say.
var healthWords = map[spec.VolumeHealthErrorType]string{
	spec.VolumeHealthErrorType_DEGRADED:     "Degraded",
	spec.VolumeHealthErrorType_INACCESSIBLE: "Inaccessible",
	spec.VolumeHealthErrorType_DATA_LOSS:    "DataLoss",
}

// describeHealth says what is wrong, for people. What a later version of the
// interface knows is left out, as upstream does.
func describeHealth(entries []*spec.VolumeHealth_VolumeHealthEntry) string {
	var all []string
	for _, e := range entries {
		word, ok := healthWords[e.GetStatus()]
		if !ok {
			continue
		}
		if e.GetReason() != "" {
			word += " (" + e.GetReason() + ")"
		}
		if e.GetMessage() != "" {
			word += ": " + e.GetMessage()
		}
		all = append(all, word)
	}
	return strings.Join(all, "; ")
}

// Numbers of what earlier versions of the interface had in NodeGetVolumeStatsResponse,
// and drivers in use still send: a message with a flag and a text.
const (
	conditionField = 2
	abnormalField  = 1
	messageField   = 2
)

// condition returns what is wrong with a volume by the unknown fields of the answer of
// a driver that has its figures; empty: nothing; nil: it does not say.
func condition(unknown []byte) *string {
	var found *string
	eachField(unknown, func(number protowire.Number, _ uint64, message []byte) {
		if number != conditionField {
			return
		}
		abnormal, text := false, ""
		eachField(message, func(number protowire.Number, value uint64, data []byte) {
			if number == abnormalField {
				abnormal = value != 0
			}
			if number == messageField {
				text = strings.ToValidUTF8(string(data), "\uFFFD")
			}
		})
		switch {
		case !abnormal:
			text = ""
		case text == "":
			text = "the driver does not say why"
		}
		found = &text
	})
	return found
}

// eachField calls do for each field of an encoded message that is a number or bytes,
// up to the first that cannot be read.
func eachField(data []byte, do func(number protowire.Number, value uint64, bytes []byte)) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return
		}
		data = data[n:]
		var value uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return
		}
		do(number, value, bytes)
		data = data[n:]
	}
}

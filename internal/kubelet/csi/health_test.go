package csi

import (
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// FuzzCondition: bytes of a driver are read without harm, and give a text.
func FuzzCondition(f *testing.F) {
	f.Add([]byte("\x12\x06\x08\x01\x12\x02no"))
	f.Add([]byte("\x12\x02\x08\x00"))
	f.Add([]byte("\x12\x02\x08\x01"))
	f.Add([]byte("\x12\xff"))
	f.Add([]byte("\x0b\x0c\x12\x02\x08\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		eachField(data, func(number protowire.Number, _ uint64, _ []byte) {
			if number < 1 {
				t.Errorf("field %d", number)
			}
		})
		if what := condition(data); what != nil && !utf8.ValidString(*what) {
			t.Errorf("%q is no text", *what)
		}
	})
}

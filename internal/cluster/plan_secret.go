// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import corev1 "k8s.io/api/core/v1"

// copyOf copies an object, and a Secret as the server would store it: with all values in Data.
func copyOf(obj Object) Object {
	c := obj.DeepCopyObject().(Object)
	s, ok := c.(*corev1.Secret)
	if !ok || len(s.StringData) == 0 {
		return c
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
	return c
}

// redacted replaces a Secret's values in a plan. It doesn't show their length.
const redacted = "<redacted>"

// redact removes the values from a copy of a Secret. The placeholders are in StringData, where people can read them.
func redact(obj Object) Object {
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return obj
	}
	s.StringData = map[string]string{}
	for key := range s.Data {
		s.StringData[key] = redacted
	}
	s.Data = nil
	return s
}

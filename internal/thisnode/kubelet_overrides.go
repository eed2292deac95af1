// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// KubeletOverrides are settings that take precedence over the kubelet's config.yaml on this host: the files of --config-dir, and flags.
type KubeletOverrides struct {
	flags   []KubeletFlag
	dropIns []dropIn
}

type dropIn struct {
	path     string
	settings map[string]any
}

// ReadKubeletOverrides reads them. A file that isn't YAML has none: the kubelet reports it.
func ReadKubeletOverrides(h host.Reader, m *config.Machine) KubeletOverrides {
	o := KubeletOverrides{flags: EffectiveFlags(h, m)}
	known := slices.DeleteFunc(slices.Clone(o.flags), func(f KubeletFlag) bool { return NeedsSystemd(f.Value) })
	EachDropIn(h, known, func(path string, doc []byte) {
		d := dropIn{path: path}
		if yaml.Unmarshal(doc, &d.settings) == nil {
			o.dropIns = append(o.dropIns, d)
		}
	})
	return o
}

// Of returns the source that overrides config.yaml's value of a setting, nil if it's missing there: a file's path, or a flag and the file
// that has it. It's empty if nothing does.
func (o KubeletOverrides) Of(setting []string, value any) (by string) {
	for _, d := range o.dropIns {
		if given, found := valueAt(d.settings, setting); found {
			by = ""
			if !sameSetting(given, value) {
				by = d.path
			}
		}
	}
	for _, f := range o.flags {
		if f.sets(setting) {
			by = ""
			if !f.leaves(setting, value) {
				by = "--" + f.Name + " in " + f.From
			}
		}
	}
	return by
}

func valueAt(settings map[string]any, path []string) (any, bool) {
	value, found := settings[path[0]]
	if below, isMap := value.(map[string]any); isMap && len(path) > 1 {
		return valueAt(below, path[1:])
	}
	return value, found && len(path) == 1
}

// otherwiseNamed are the kubelet's flags whose names don't follow from their settings':
// https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/
var otherwiseNamed = map[string]string{
	"authentication.anonymous.enabled":           "anonymous-auth",
	"authentication.webhook.cacheTTL":            "authentication-token-webhook-cache-ttl",
	"authentication.webhook.enabled":             "authentication-token-webhook",
	"authentication.x509.clientCAFile":           "client-ca-file",
	"authorization.mode":                         "authorization-mode",
	"authorization.webhook.cacheAuthorizedTTL":   "authorization-webhook-cache-authorized-ttl",
	"authorization.webhook.cacheUnauthorizedTTL": "authorization-webhook-cache-unauthorized-ttl",
	"enableContentionProfiling":                  "contention-profiling",
	"eventRecordQPS":                             "event-qps",
	"imageGCHighThresholdPercent":                "image-gc-high-threshold",
	"imageGCLowThresholdPercent":                 "image-gc-low-threshold",
	"imageMinimumGCAge":                          "minimum-image-ttl-duration",
	"logging.format":                             "logging-format",
	"logging.verbosity":                          "v",
	"podPidsLimit":                               "pod-max-pids",
	"registryPullQPS":                            "registry-qps",
	"reservedSystemCPUs":                         "reserved-cpus",
	"serverTLSBootstrap":                         "rotate-server-certificates",
	"staticPodPath":                              "pod-manifest-path",
	"staticPodURL":                               "manifest-url",
	"staticPodURLHeader":                         "manifest-url-header",
}

// sets reports whether the flag stands for a setting: maxPods is --max-pods.
func (f KubeletFlag) sets(setting []string) bool {
	if other, has := otherwiseNamed[strings.Join(setting, ".")]; has {
		return f.Name == other
	}
	return strings.ReplaceAll(f.Name, "-", "") == strings.ToLower(setting[0])
}

// leaves reports whether a setting has this value in spite of the flag, which sets it. A flag of a map has KEY=VALUE or KEY<VALUE, and
// replaces the map; only feature gates are merged.
func (f KubeletFlag) leaves(setting []string, value any) bool {
	if _, has := otherwiseNamed[strings.Join(setting, ".")]; has || len(setting) == 1 {
		return sameSetting(cmp.Or(f.Value, "true"), value)
	}
	key := strings.Join(setting[1:], ".")
	for part := range strings.SplitSeq(f.Value, ",") {
		if i := strings.IndexAny(part, "=<"); i >= 0 && part[:i] == key {
			return sameSetting(part[i+1:], value)
		}
	}
	return value == nil || setting[0] == "featureGates"
}

// sameSetting compares values of YAML files and of flags.
func sameSetting(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	if a == nil || b == nil {
		return false
	}
	one, other := settingText(a), settingText(b)
	if one == other {
		return true
	}
	took, err := time.ParseDuration(one)
	lasts, otherErr := time.ParseDuration(other)
	return err == nil && otherErr == nil && took == lasts
}

// settingText is a value as a flag has it.
func settingText(value any) string {
	switch v := value.(type) {
	case float64: // every number
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		var parts []string
		for _, part := range v {
			parts = append(parts, settingText(part))
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(value)
}

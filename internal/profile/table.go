// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// Of returns a profile by its name.
func Of(name string) (Profile, bool) {
	switch name {
	case Audit:
		return Profile{Settings: auditSettings()}, true
	case CIS:
		return Profile{Settings: slices.Concat(auditSettings(), cisSettings()), Fields: cisFields()}, true
	case CISStrict:
		return Profile{Settings: slices.Concat(auditSettings(), cisSettings(), strictSettings()), Fields: cisFields()}, true
	}
	return Profile{}, false
}

// fileSetting names the file that a flag of the API server gets.
func fileSetting(flag string, against ...string) Setting {
	files := Files()
	f := files[slices.IndexFunc(files, func(f File) bool { return f.Flag == flag })]
	return Setting{Component: apiServer, Name: flag, Value: f.Path, Against: against, Mount: f.Mount}
}

// auditSettings keep at most 1.1 GB of logs: 100 MB each, and ten rotated ones.
func auditSettings() []Setting {
	return []Setting{
		fileSetting("audit-policy-file"),
		{Component: apiServer, Name: AuditLogFlag, Value: LogFile(), Mount: logMount},
		{Component: apiServer, Name: "audit-log-maxage", Value: "30"},
		{Component: apiServer, Name: "audit-log-maxbackup", Value: "10"},
		{Component: apiServer, Name: "audit-log-maxsize", Value: "100"},
	}
}

// ciphers are those of TLS 1.2 that are both fast and forward secret. TLS 1.3 has its own, which can't be chosen.
var ciphers = []string{
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
	"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
}

// oidcFlags configure authentication by flags, which the API server refuses beside its configuration file.
var oidcFlags = []string{
	"oidc-issuer-url", "oidc-client-id", "oidc-ca-file", "oidc-username-claim", "oidc-username-prefix", "oidc-groups-claim",
	"oidc-groups-prefix", "oidc-required-claim", "oidc-signing-algs",
}

func cisSettings() []Setting {
	out := []Setting{
		fileSetting("authentication-config", append([]string{"anonymous-auth"}, oidcFlags...)...),
		fileSetting("admission-control-config-file"),
		{Component: apiServer, Name: "enable-admission-plugins", Value: "NodeRestriction,DenyServiceExternalIPs,EventRateLimit",
			With: "admission-control-config-file"}, // has the limits of EventRateLimit
		{Component: apiServer, Name: "service-account-extend-token-expiration", Value: "false"},
		{Component: controllerManager, Name: "terminated-pod-gc-threshold", Value: "1000"},
	}
	for _, component := range []string{apiServer, controllerManager, scheduler} {
		out = append(out,
			Setting{Component: component, Name: "profiling", Value: "false"},
			Setting{Component: component, Name: "tls-cipher-suites", Value: strings.Join(ciphers, ",")})
	}
	return out
}

// strictSettings cut kubelets off whose requests for serving certificates nobody has approved yet.
func strictSettings() []Setting {
	return []Setting{{Component: apiServer, Name: KubeletAuthorityFlag, Value: "ca.crt", InCertificatesDir: true}}
}

// cisFields write nothing that is the kubelet's own default or Slipway's, such as no read-only port: the first two only name other
// values.
func cisFields() []Field {
	const idle = 5 * time.Minute
	return []Field{
		{"readOnlyPort", func(k *kubelet.KubeletConfiguration) { k.ReadOnlyPort = 0 }},
		{"makeIPTablesUtilChains", func(k *kubelet.KubeletConfiguration) {
			if k.MakeIPTablesUtilChains != nil {
				k.MakeIPTablesUtilChains = new(true)
			}
		}},
		{"protectKernelDefaults", func(k *kubelet.KubeletConfiguration) { k.ProtectKernelDefaults = true }},
		{"eventRecordQPS", func(k *kubelet.KubeletConfiguration) { k.EventRecordQPS = new(int32(50)) }},
		{"podPidsLimit", func(k *kubelet.KubeletConfiguration) { k.PodPidsLimit = new(int64(4096)) }},
		{"serverTLSBootstrap", func(k *kubelet.KubeletConfiguration) { k.ServerTLSBootstrap = true }},
		{"seccompDefault", func(k *kubelet.KubeletConfiguration) { k.SeccompDefault = new(true) }},
		{"streamingConnectionIdleTimeout", func(k *kubelet.KubeletConfiguration) {
			k.StreamingConnectionIdleTimeout = metav1.Duration{Duration: idle}
		}},
		{"tlsCipherSuites", func(k *kubelet.KubeletConfiguration) { k.TLSCipherSuites = slices.Clone(ciphers) }},
	}
}

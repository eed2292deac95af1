// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InitFlags is what the command line of `init`, or of one of its phases, says.
// A field counts only if Given names its flag, so that a flag's default, bound
// straight to the field, is not taken for the user's word.
type InitFlags struct {
	// Given names the flags that the command line has, without dashes:
	// "pod-network-cidr".
	Given []string

	APIServerAdvertiseAddress string        // --apiserver-advertise-address
	APIServerBindPort         int32         // --apiserver-bind-port
	APIServerCertExtraSANs    []string      // --apiserver-cert-extra-sans
	CertDir                   string        // --cert-dir
	CertificateKey            string        // --certificate-key
	ControlPlaneEndpoint      string        // --control-plane-endpoint
	CRISocket                 string        // --cri-socket
	DryRun                    bool          // --dry-run
	EnableKubelet             bool          // --enable-kubelet
	FeatureGates              string        // --feature-gates, as NAME=true,NAME=false
	IgnorePreflightErrors     []string      // --ignore-preflight-errors
	ImageRepository           string        // --image-repository
	Kubeconfig                string        // --kubeconfig
	KubeconfigDir             string        // --kubeconfig-dir
	KubernetesVersion         string        // --kubernetes-version
	NodeName                  string        // --node-name
	Patches                   string        // --patches
	PodNetworkCIDR            string        // --pod-network-cidr
	ServiceCIDR               string        // --service-cidr
	ServiceDNSDomain          string        // --service-dns-domain
	SkipCertificateKeyPrint   bool          // --skip-certificate-key-print
	SkipPhases                []string      // --skip-phases
	SkipTokenPrint            bool          // --skip-token-print
	Token                     string        // --token
	TokenTTL                  time.Duration // --token-ttl
	UploadCerts               bool          // --upload-certs
}

// notWithConfig are the flags that say what a file says too. The two would
// contradict each other, so both together are refused, as kubeadm does.
var notWithConfig = []string{
	"apiserver-advertise-address", "apiserver-bind-port", "apiserver-cert-extra-sans", "cert-dir",
	"certificate-key", "control-plane-endpoint", "cri-socket", "feature-gates", "image-repository",
	"kubernetes-version", "patches", "pod-network-cidr", "service-cidr", "service-dns-domain",
	"token", "token-ttl",
}

func (f *InitFlags) given(name string) bool { return slices.Contains(f.Given, name) }

// apply writes the given flags into the documents, and remembers for each
// field which flag set it.
func (f *InitFlags) apply(d *documents, withFile bool) {
	if withFile {
		f.refuseMixing(d)
	}
	set := func(kind, flag, path string, write func()) {
		if f.given(flag) && (!withFile || !slices.Contains(notWithConfig, flag)) {
			d.setByFlag(kind, flag, path)
			write()
		}
	}
	set(kindInit, "apiserver-advertise-address", "localAPIEndpoint.advertiseAddress", func() {
		d.init.LocalAPIEndpoint.AdvertiseAddress = f.APIServerAdvertiseAddress
	})
	set(kindInit, "apiserver-bind-port", "localAPIEndpoint.bindPort", func() {
		d.init.LocalAPIEndpoint.BindPort = f.APIServerBindPort
	})
	set(kindCluster, "apiserver-cert-extra-sans", "apiServer.certSANs", func() {
		d.cluster.APIServer.CertSANs = f.APIServerCertExtraSANs
	})
	set(kindCluster, "cert-dir", "certificatesDir", func() { d.cluster.CertificatesDir = f.CertDir })
	set(kindInit, "certificate-key", "certificateKey", func() { d.init.CertificateKey = f.CertificateKey })
	set(kindCluster, "control-plane-endpoint", "controlPlaneEndpoint", func() {
		d.cluster.ControlPlaneEndpoint = f.ControlPlaneEndpoint
	})
	set(kindInit, "cri-socket", "nodeRegistration.criSocket", func() { d.init.NodeRegistration.CRISocket = f.CRISocket })
	set(kindInit, "dry-run", "dryRun", func() { d.init.DryRun = f.DryRun })
	set(kindCluster, "feature-gates", "featureGates", func() { d.cluster.FeatureGates = f.featureGates(d) })
	set(kindCluster, "image-repository", "imageRepository", func() { d.cluster.ImageRepository = f.ImageRepository })
	set(kindCluster, "kubernetes-version", "kubernetesVersion", func() { d.cluster.KubernetesVersion = f.KubernetesVersion })
	set(kindInit, "node-name", "nodeRegistration.name", func() { d.init.NodeRegistration.Name = f.NodeName })
	set(kindInit, "patches", "patches.directory", func() { d.init.Patches = &Patches{Directory: f.Patches} })
	set(kindCluster, "pod-network-cidr", "networking.podSubnet", func() { d.cluster.Networking.PodSubnet = f.PodNetworkCIDR })
	set(kindCluster, "service-cidr", "networking.serviceSubnet", func() { d.cluster.Networking.ServiceSubnet = f.ServiceCIDR })
	set(kindCluster, "service-dns-domain", "networking.dnsDomain", func() { d.cluster.Networking.DNSDomain = f.ServiceDNSDomain })
	set(kindInit, "skip-phases", "skipPhases", func() { d.init.SkipPhases = f.SkipPhases })
	set(kindInit, "ignore-preflight-errors", "nodeRegistration.ignorePreflightErrors", func() {
		r := &d.init.NodeRegistration
		r.IgnorePreflightErrors = slices.Concat(r.IgnorePreflightErrors, f.IgnorePreflightErrors)
	})
	f.applyTokens(d, set)
}

// applyTokens gives --token and --token-ttl to the one token that flags can
// speak of.
func (f *InitFlags) applyTokens(d *documents, set func(kind, flag, path string, write func())) {
	first := func() *BootstrapToken {
		if len(d.init.BootstrapTokens) == 0 {
			d.init.BootstrapTokens = []BootstrapToken{{Description: defaultTokenDescription}}
		}
		return &d.init.BootstrapTokens[0]
	}
	set(kindInit, "token", "bootstrapTokens[0].token", func() { first().Token = f.Token })
	set(kindInit, "token-ttl", "bootstrapTokens[0].ttl", func() { first().TTL = &metav1.Duration{Duration: f.TokenTTL} })
}

func (f *InitFlags) refuseMixing(d *documents) {
	for _, flag := range f.Given {
		if slices.Contains(notWithConfig, flag) {
			d.fault(Fault{Field: "--" + flag, Message: "cannot be given together with --config; write the value into the file"})
		}
	}
}

// featureGates reads NAME=BOOL,NAME=BOOL.
func (f *InitFlags) featureGates(d *documents) map[string]bool {
	gates := make(map[string]bool)
	for pair := range strings.SplitSeq(f.FeatureGates, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, text, _ := strings.Cut(pair, "=")
		value, err := strconv.ParseBool(text)
		if err != nil {
			d.faultf(kindCluster, "featureGates", "%q must be NAME=true or NAME=false", printable(pair))
			continue
		}
		gates[strings.TrimSpace(name)] = value
	}
	return gates
}

// setByFlag remembers that a flag has set a field.
func (d *documents) setByFlag(kind, flag, path string) {
	o := d.origins[kind]
	if o == nil {
		o = &origin{}
		d.origins[kind] = o
	}
	if o.flags == nil {
		o.flags = make(map[string]string)
	}
	o.flags[path] = flag
}

// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/config"
)

// initOptions are the flags of `init` and of its phases.
type initOptions struct {
	config.InitFlags

	configFile    string
	printManifest bool
	// anyHost tells that nothing is done to this host, so that an address
	// which it lacks may be made up.
	anyHost bool
}

// initFlagNames are the flags of `init` itself; the phases name their own.
var initFlagNames = []string{
	"apiserver-advertise-address", "apiserver-bind-port", "apiserver-cert-extra-sans", "cert-dir", "certificate-key",
	"config", "control-plane-endpoint", "cri-socket", "dry-run", "enable-kubelet", "feature-gates",
	"ignore-preflight-errors", "image-repository", "kubernetes-version", "node-name", "patches", "pod-network-cidr",
	"service-cidr", "service-dns-domain", "skip-certificate-key-print", "skip-phases", "skip-token-print", "token",
	"token-ttl", "upload-certs",
}

// bind adds the named flags to fs. A name that it does not know is a mistake
// in the table of a phase.
func (o *initOptions) bind(fs *pflag.FlagSet, names []string) {
	for _, name := range names {
		o.bindOne(fs, name)
	}
}

func (o *initOptions) bindOne(fs *pflag.FlagSet, name string) {
	switch name {
	case "apiserver-advertise-address":
		fs.StringVar(&o.APIServerAdvertiseAddress, name, "", "`IP` address at which the API server says it can be reached; by default that of the default route")
	case "apiserver-bind-port":
		fs.Int32Var(&o.APIServerBindPort, name, config.DefaultBindPort, "port at which the API server listens")
	case "apiserver-cert-extra-sans":
		fs.StringSliceVar(&o.APIServerCertExtraSANs, name, nil, "more DNS `names` and IP addresses for the API server's certificate")
	case "cert-dir":
		fs.StringVar(&o.CertDir, name, config.DefaultCertificatesDir, "`folder` of the certificates")
	case "certificate-key":
		fs.StringVar(&o.CertificateKey, name, "", "`key` that encrypts the shared certificates: 64 hexadecimal digits")
	case "config":
		fs.StringVar(&o.configFile, name, "", "configuration `file`; - for standard input")
	case "control-plane-endpoint":
		fs.StringVar(&o.ControlPlaneEndpoint, name, "", "stable `host[:port]` at which all control planes are reached together")
	case "cri-socket":
		fs.StringVar(&o.CRISocket, name, "", "`socket` of the container runtime; found by itself unless there are several")
	case "dry-run":
		fs.BoolVar(&o.DryRun, name, false, "show what would be done, in order, and do nothing")
	case "enable-kubelet":
		fs.BoolVar(&o.EnableKubelet, name, false, "make the kubelet's unit start at boot")
	case "feature-gates":
		fs.StringVar(&o.FeatureGates, name, "", "feature `gates` as NAME=true,NAME=false: "+config.FeatureGateNames())
	case "ignore-preflight-errors":
		fs.StringSliceVar(&o.IgnorePreflightErrors, name, nil, "`checks` whose errors become warnings, or all")
	case "image-repository":
		fs.StringVar(&o.ImageRepository, name, config.DefaultImageRepository, "`registry` of the control plane's images")
	case "kubeconfig":
		fs.StringVar(&o.Kubeconfig, name, config.DefaultAdminKubeconfig, "kubeconfig `file` for talking to the cluster")
	case "kubeconfig-dir":
		fs.StringVar(&o.KubeconfigDir, name, config.DefaultKubernetesDir, "`folder` to write kubeconfig files to")
	case "kubernetes-version":
		fs.StringVar(&o.KubernetesVersion, name, config.DefaultKubernetesVersion, "Kubernetes `version` of the control plane")
	default:
		o.bindMore(fs, name)
	}
}

func (o *initOptions) bindMore(fs *pflag.FlagSet, name string) {
	switch name {
	case "node-name":
		fs.StringVar(&o.NodeName, name, "", "`name` of this node; by default the host's")
	case "patches":
		fs.StringVar(&o.Patches, name, "", "`folder` of files TARGET[SUFFIX][+TYPE].EXT that patch what is generated")
	case "pod-network-cidr":
		fs.StringVar(&o.PodNetworkCIDR, name, "", "`network` of the Pods, or one of each IP family")
	case "print-manifest":
		fs.BoolVar(&o.printManifest, name, false, "print the add-on's objects and do nothing")
	case "service-cidr":
		fs.StringVar(&o.ServiceCIDR, name, config.DefaultServiceSubnet, "`network` of the Services, or one of each IP family")
	case "service-dns-domain":
		fs.StringVar(&o.ServiceDNSDomain, name, config.DefaultDNSDomain, "DNS `domain` of the Services")
	case "skip-certificate-key-print":
		fs.BoolVar(&o.SkipCertificateKeyPrint, name, false, "keep the certificate key out of the output")
	case "skip-phases":
		fs.StringSliceVar(&o.SkipPhases, name, nil, "`phases` to leave out")
	case "skip-token-print":
		fs.BoolVar(&o.SkipTokenPrint, name, false, "keep the bootstrap token out of the output")
	case "token":
		fs.StringVar(&o.Token, name, "", "bootstrap `token` ID.SECRET: [a-z0-9]{6}.[a-z0-9]{16}; by default a new one")
	case "token-ttl":
		fs.DurationVar(&o.TokenTTL, name, config.DefaultTokenTTL, "time that the token lives; 0 for ever")
	case "upload-certs":
		fs.BoolVar(&o.UploadCerts, name, false, "share the control plane's certificates, encrypted, for two hours")
	default:
		panic("no flag is called " + name)
	}
}

// aboutOutput are the flags that say nothing of the node: they go together with
// a configuration file.
var aboutOutput = append([]string{"allow-missing-template-keys", "rootfs", "show-managed-fields", "v", "vmodule"}, reportFlags...)

// given lists the flags that the command line has for the configuration.
func given(fs *pflag.FlagSet) []string {
	var names []string
	fs.Visit(func(f *pflag.Flag) {
		if !slices.Contains(aboutOutput, f.Name) {
			names = append(names, f.Name)
		}
	})
	return names
}

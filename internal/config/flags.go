// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"sync"
	"time"
)

// Each command, or group of commands, has a struct for the values of its flags. A field's tag names its flag in flag_table.go; a
// flag that nothing reads has no field. A value counts only if Given names its flag: otherwise it's the flag's default, which
// mustn't override a configuration file.

// Given lists the flags on the command line, without dashes: "pod-network-cidr".
type Given []string

func (g Given) Has(flag string) bool { return slices.Contains(g, flag) }

// InitFlags are the flags of `init`, its phases, and commands that read its configuration.
type InitFlags struct {
	Given                     Given
	APIServerAdvertiseAddress string        `flag:"apiserver-advertise-address"`
	APIServerBindPort         int32         `flag:"apiserver-bind-port"`
	APIServerCertExtraSANs    []string      `flag:"apiserver-cert-extra-sans"`
	CertDir                   string        `flag:"cert-dir"`
	CertificateKey            string        `flag:"certificate-key"`
	ConfigFile                string        `flag:"config"`
	ControlPlaneEndpoint      string        `flag:"control-plane-endpoint"`
	CRISocket                 string        `flag:"cri-socket"`
	DryRun                    bool          `flag:"dry-run"`
	EnableKubelet             bool          `flag:"enable-kubelet"`
	FeatureGates              string        `flag:"feature-gates"` // NAME=true,NAME=false
	IgnorePreflightErrors     []string      `flag:"ignore-preflight-errors"`
	ImageRepository           string        `flag:"image-repository"`
	Kubeconfig                string        `flag:"kubeconfig"`
	KubeconfigDir             string        `flag:"kubeconfig-dir"`
	KubernetesVersion         string        `flag:"kubernetes-version"`
	NetworkAddOn              string        `flag:"network"` // none, flannel, or a file
	NetworkManifest           []byte        // content of that file
	NodeName                  string        `flag:"node-name"`
	Patches                   string        `flag:"patches"`
	PodNetworkCIDR            string        `flag:"pod-network-cidr"`
	PrintManifest             bool          `flag:"print-manifest"`
	Profile                   string        `flag:"profile"`
	Schedulable               bool          `flag:"schedulable"` // of `up`
	ServiceCIDR               string        `flag:"service-cidr"`
	ServiceDNSDomain          string        `flag:"service-dns-domain"`
	SkipCertificateKeyPrint   bool          `flag:"skip-certificate-key-print"`
	SkipPhases                []string      `flag:"skip-phases"`
	SkipTokenPrint            bool          `flag:"skip-token-print"`
	Token                     string        `flag:"token"`
	TokenTTL                  time.Duration `flag:"token-ttl"`
	UploadCerts               bool          `flag:"upload-certs"`
}

type JoinFlags struct {
	Given                     Given
	Endpoint                  string   // the argument: host:port of an API server to discover
	APIServerAdvertiseAddress string   `flag:"apiserver-advertise-address"`
	APIServerBindPort         int32    `flag:"apiserver-bind-port"`
	CertificateKey            string   `flag:"certificate-key"`
	ConfigFile                string   `flag:"config"`
	ControlPlane              bool     `flag:"control-plane"`
	CRISocket                 string   `flag:"cri-socket"`
	DiscoveryFile             string   `flag:"discovery-file"`
	DiscoveryToken            string   `flag:"discovery-token"`
	CACertHashes              []string `flag:"discovery-token-ca-cert-hash"`
	SkipCAVerification        bool     `flag:"discovery-token-unsafe-skip-ca-verification"`
	DryRun                    bool     `flag:"dry-run"`
	IgnorePreflightErrors     []string `flag:"ignore-preflight-errors"`
	NodeName                  string   `flag:"node-name"`
	Patches                   string   `flag:"patches"`
	SkipPhases                []string `flag:"skip-phases"`
	TLSBootstrapToken         string   `flag:"tls-bootstrap-token"`
	Token                     string   `flag:"token"` // or from the file of --token-file
	TokenFile                 string   `flag:"token-file"`
}

type ResetFlags struct {
	Given                 Given
	CertDir               string   `flag:"cert-dir"`
	CleanupTmpDir         bool     `flag:"cleanup-tmp-dir"`
	ConfigFile            string   `flag:"config"`
	CRISocket             string   `flag:"cri-socket"`
	DryRun                bool     `flag:"dry-run"`
	Force                 bool     `flag:"force"`
	Host                  bool     `flag:"host"` // of `down`
	IgnorePreflightErrors []string `flag:"ignore-preflight-errors"`
	Kubeconfig            string   `flag:"kubeconfig"`
	Network               bool     `flag:"network"`
	SkipPhases            []string `flag:"skip-phases"`
}

// UpgradeFlags are the flags of the subcommands of `upgrade`.
type UpgradeFlags struct {
	Given                     Given
	Command                   string        // such as "upgrade apply"
	Version                   string        // the argument
	AllowExperimentalUpgrades bool          `flag:"allow-experimental-upgrades"`
	AllowPrereleases          bool          `flag:"allow-release-candidate-upgrades"`
	CertificateRenewal        bool          `flag:"certificate-renewal"`
	ConfigFile                string        `flag:"config"`
	ContextLines              int           `flag:"context-lines"`
	Drain                     bool          `flag:"drain"`
	DrainForce                bool          `flag:"drain-force"`
	DrainTimeout              time.Duration `flag:"drain-timeout"`
	DryRun                    bool          `flag:"dry-run"`
	EtcdUpgrade               bool          `flag:"etcd-upgrade"`
	Force                     bool          `flag:"force"`
	IgnorePreflightErrors     []string      `flag:"ignore-preflight-errors"`
	Patches                   string        `flag:"patches"`
	PrintConfig               bool          `flag:"print-config"`
	SkipPhases                []string      `flag:"skip-phases"`
	Yes                       bool          `flag:"yes"`
}

type RollbackFlags struct {
	IgnorePreflightErrors []string `flag:"ignore-preflight-errors"`
	RestoreEtcd           bool     `flag:"restore-etcd"`
	Yes                   bool     `flag:"yes"`
}

// ReconfigureFlags are the flags of `reconfigure` and `reconfigure node`.
type ReconfigureFlags struct {
	TrialFlags
	ConfigFile string        `flag:"config"`
	Confirm    bool          `flag:"confirm"`
	Edit       bool          `flag:"edit"`
	Profile    string        `flag:"profile"`
	Revert     bool          `flag:"revert"`
	Try        time.Duration `flag:"try"`
}

// TrialFlags are the flags of `encryption enable` and of all other changes on trial.
type TrialFlags struct {
	IgnorePreflightErrors []string `flag:"ignore-preflight-errors"`
	Patches               string   `flag:"patches"`
}

// Complete gives self, this node of a living cluster, what the flags say about its files and checks.
func (o *TrialFlags) Complete(self *JoinConfiguration) {
	self.NodeRegistration.IgnorePreflightErrors = o.IgnorePreflightErrors
	if o.Patches != "" {
		self.Patches = &Patches{Directory: o.Patches}
	}
}

// RemovalFlags are the flags of `reset node`, `etcd member remove` and `etcd prune`.
type RemovalFlags struct {
	Yes bool `flag:"yes"`
}

type DefragFlags struct {
	All bool `flag:"all"`
}

type RestoreFlags struct {
	IgnorePreflightErrors []string `flag:"ignore-preflight-errors"`
	Yes                   bool     `flag:"yes"`
}

type RecoverFlags struct {
	Abandon               []string `flag:"abandon"`
	DropUncommitted       bool     `flag:"drop-uncommitted"`
	IgnorePreflightErrors []string `flag:"ignore-preflight-errors"`
	Yes                   bool     `flag:"yes"`
}

type TokenFlags struct {
	Given            Given
	CertificateKey   string        `flag:"certificate-key"`
	ConfigFile       string        `flag:"config"`
	ControlPlane     bool          `flag:"control-plane"`
	Description      string        `flag:"description"`
	Groups           []string      `flag:"groups"`
	PrintJoinCommand bool          `flag:"print-join-command"`
	Token            string        // the argument
	TokenTTL         time.Duration `flag:"ttl"`
	Usages           []string      `flag:"usages"`
}

// CertsFlags are the flags of commands for certificates and users' kubeconfigs.
type CertsFlags struct {
	CertDir       string `flag:"cert-dir"`
	ConfigFile    string `flag:"config"`
	KubeconfigDir string `flag:"kubeconfig-dir"`
}

type HostFlags struct {
	Given                 Given
	AllowDowngrade        bool     `flag:"allow-downgrade"`
	Bundle                string   `flag:"bundle"`
	CRISocket             string   `flag:"cri-socket"`
	Digest                string   `flag:"digest"` // of the bundle: sha256:…
	DryRun                bool     `flag:"dry-run"`
	IgnorePreflightErrors []string `flag:"ignore-preflight-errors"`
	PublicKeys            []string `flag:"public-key"`
	RegistryMirrors       []string `flag:"registry-mirror"` // REGISTRY=URL
	SkipPhases            []string `flag:"skip-phases"`
	Swap                  string   `flag:"swap"` // off or keep
}

type DiagnoseFlags struct {
	CRISocket string `flag:"cri-socket"`
}

// UpFlags are the flags of `up`: its parts', and their arguments. A flag of several parts is in the first field with its name, until
// Split copies it.
type UpFlags struct {
	Given      Given
	ConfigFile string   `flag:"config"`
	SkipPhases []string `flag:"skip-phases"`

	Join JoinFlags
	Init InitFlags
	Host HostFlags
}

// DownFlags are the flags of `down`, like UpFlags.
type DownFlags struct {
	Given      Given
	SkipPhases []string `flag:"skip-phases"`

	Reset ResetFlags
	Host  HostFlags
}

// fieldOf returns a pointer to the field for a flag, or nil if flags, a pointer to one of these structs or nil, has none.
func fieldOf(flags any, name string) any {
	if flags == nil {
		return nil
	}
	v := reflect.ValueOf(flags).Elem()
	index, ok := flagFields()[v.Type()][name]
	if !ok {
		return nil
	}
	return v.FieldByIndex(index).Addr().Interface()
}

// flagFields are the indexes of the fields by the names of their flags.
var flagFields = sync.OnceValue(func() map[reflect.Type]map[string][]int {
	all := make(map[reflect.Type]map[string][]int)
	for _, flags := range []any{
		InitFlags{}, JoinFlags{}, ResetFlags{}, UpgradeFlags{}, RollbackFlags{}, ReconfigureFlags{}, TrialFlags{}, RemovalFlags{},
		DefragFlags{}, RestoreFlags{}, RecoverFlags{}, TokenFlags{}, CertsFlags{}, HostFlags{}, DiagnoseFlags{}, UpFlags{}, DownFlags{},
	} {
		all[reflect.TypeOf(flags)] = taggedFields(reflect.TypeOf(flags))
	}
	return all
})

// taggedFields includes the fields of parts, unless an earlier field has the flag.
func taggedFields(t reflect.Type) map[string][]int {
	fields := make(map[string][]int)
	for f := range t.Fields() {
		if name := f.Tag.Get("flag"); name != "" {
			fields[name] = f.Index
		}
		if f.Type.Kind() == reflect.Struct {
			for name, index := range taggedFields(f.Type) {
				if fields[name] == nil {
					fields[name] = slices.Concat(f.Index, index)
				}
			}
		}
	}
	return fields
}

// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Flags holds the values of the flags in flag_table.go. A value counts only if Given names its flag: otherwise it's the flag's
// default, which mustn't override a configuration file.
type Flags struct {
	// Given lists the flags on the command line, without dashes: "pod-network-cidr".
	Given []string
	// Endpoint is the argument of join: host:port of an API server to discover.
	Endpoint string

	AllowDowngrade            bool
	AllowExperimentalUpgrades bool
	AllowPrereleases          bool
	APIServerAdvertiseAddress string
	APIServerBindPort         int32
	APIServerCertExtraSANs    []string
	Bundle                    string
	CACertHashes              []string
	CertDir                   string
	CertificateKey            string
	CertificateRenewal        bool
	CleanupTmpDir             bool
	ConfigFile                string
	ContextLines              int
	ControlPlane              bool
	ControlPlaneEndpoint      string
	CRISocket                 string
	Description               string
	Digest                    string // of the bundle: sha256:…
	DiscoveryFile             string
	DiscoveryToken            string
	Drain                     bool
	DrainForce                bool
	DrainTimeout              time.Duration
	DryRun                    bool
	EnableKubelet             bool
	EtcdUpgrade               bool
	FeatureGates              string // NAME=true,NAME=false
	Force                     bool
	Groups                    []string
	Host                      bool
	IgnorePreflightErrors     []string
	ImageRepository           string
	Kubeconfig                string
	KubeconfigDir             string
	KubernetesVersion         string
	Network                   bool
	NetworkAddOn              string // none, flannel, or a file
	NetworkManifest           []byte // content of that file
	NodeName                  string
	Patches                   string
	PodNetworkCIDR            string
	PrintConfig               bool
	PrintJoinCommand          bool
	PrintManifest             bool
	PublicKeys                []string
	RegistryMirrors           []string // REGISTRY=URL
	Schedulable               bool
	ServiceCIDR               string
	ServiceDNSDomain          string
	SkipCAVerification        bool
	SkipCertificateKeyPrint   bool
	SkipPhases                []string
	SkipTokenPrint            bool
	Swap                      string // off or keep
	TLSBootstrapToken         string
	// Token comes from --token, --token-file's file, or the argument of token create.
	Token       string
	TokenFile   string
	TokenTTL    time.Duration
	UploadCerts bool
	Usages      []string
	Yes         bool
	RestoreEtcd bool
}

// ValuesAnnotation marks a bound flag with its values for shell completion.
const ValuesAnnotation = "slipway_values"

// Bind adds a command's flags from the table; the command is named like "init" or "token create".
func (f *Flags) Bind(fs *pflag.FlagSet, command string) {
	for _, part := range partsOf(command) {
		for _, row := range flagTable() {
			if slices.Contains(row.commands, part) && fs.Lookup(row.Name) == nil {
				row.bindTo(fs, f)
			}
		}
	}
}

// BindPhase adds the named flags of a phase of init, join or reset. It leaves out names missing from the table: a test finds
// them, and a user's run mustn't end over them.
func (f *Flags) BindPhase(fs *pflag.FlagSet, workflow string, names []string) {
	for _, name := range names {
		if row := cmp.Or(flagOf(workflow, name), flagOf(workflow+" phase", name)); row != nil {
			row.bindTo(fs, f)
		}
	}
}

func (f *flagRow) bindTo(fs *pflag.FlagSet, to *Flags) {
	f.bind(fs, to)
	if f.values != nil {
		_ = fs.SetAnnotation(f.Name, ValuesAnnotation, f.values) // fails only for a flag that doesn't exist
	}
}

func (f *Flags) given(name string) bool { return slices.Contains(f.Given, name) }

// apply writes a command's given flags into the documents of the given kinds, and records which flag set each field. withFile
// means that --config is given, too.
func (f *Flags) apply(d *documents, command string, withFile bool, kinds ...string) {
	if withFile {
		f.refuseMixing(d, command)
	}
	for _, row := range flagTable() {
		if !f.given(row.Name) || !slices.Contains(row.commands, command) || withFile && row.refusedWithConfig() {
			continue
		}
		for _, field := range row.fields {
			if slices.Contains(kinds, field.kind) {
				d.setByFlag(field.kind, row.Name, field.path)
				field.set(d, f)
			}
		}
	}
}

// refuseMixing refuses flags that could contradict the file, as kubeadm does.
func (f *Flags) refuseMixing(d *documents, command string) {
	for _, name := range f.Given {
		if row := flagOf(command, name); row != nil && row.refusedWithConfig() {
			d.fault(Fault{Field: "--" + name, Message: "cannot be given together with --config; set the value in the file"})
		}
	}
}

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

func (d *documents) parseGates(text string) map[string]bool {
	gates := make(map[string]bool)
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			d.faultf(kindCluster, "featureGates", "%q must be NAME=true or NAME=false", printable(pair))
			continue
		}
		gates[strings.TrimSpace(name)] = on
	}
	return gates
}

// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/profile"
)

// flagTable is every flag that ends up in the configuration or is shared by several commands. Binding, help, completion, the rule
// against --config and the origin of a value in faults come from it; docs/adding-a-flag.md shows how to add a flag. A command's own
// flags are bound in its file.
//
// A name has more than one row where its meaning depends on the command. Rows are applied in order: --token precedes the flags
// that override it.
//
// A usage text puts the value's name in backquotes, and shell completion goes by it: file, directory, phases, checks.
var flagTable = sync.OnceValue(func() []flagRow {
	return slices.Concat(commandFlags(), nodeFlags(), apiServerFlags(), clusterFlags(), networkFlags(),
		certificateFlags(), initTokenFlags(), joinFlags(), resetFlags(), tokenFlags(), upgradeFlags(), reconfigureFlags(), maintenanceFlags(), hostFlags(), upFlags())
})

func commandFlags() []flagRow {
	return []flagRow{
		text("config", "", "configuration `file`; - reads standard input").
			forCommands("init", "join", "reset", "preflight init", "preflight join", "config images list", "config images pull", "config validate",
				"certs check-expiration", "certs renew", "certs generate-csr", "kubeconfig user",
				upgradeApply, upgradeNode, upgradePlan, upgradeDiff, reconfigureCommand),
		text("config", "", "configuration `file` with the bootstrapTokens to create; - reads standard input").forCommands("token create"),
		toggle("edit", "edit the cluster's configuration in KUBE_EDITOR or EDITOR").forCommands(reconfigureCommand),
		toggle("dry-run", "print the steps in order, without executing them").allowWithConfig().
			sets(kindInit, "dryRun", func(d *documents, v bool) { d.init.DryRun = v }).
			sets(kindReset, "dryRun", func(d *documents, v bool) { d.reset.DryRun = v }).
			sets(kindUpgrade, "apply.dryRun", func(d *documents, v bool) { d.upgrade.Apply.DryRun = &v }).
			sets(kindUpgrade, "node.dryRun", func(d *documents, v bool) { d.upgrade.Node.DryRun = &v }).
			forCommands("init", "reset", "token", upgradeApply, upgradeNode, upgradeRollback, resetNode, etcdMemberRemove, etcdDefrag, etcdRestore, etcdRecover, etcdPrune, etcdSnapshotPrune, hostPrepare, hostReset,
				reconfigureCommand, reconfigureNode),
		toggle("dry-run", "print the steps in order, without executing them or contacting the cluster (--diff contacts it)").allowWithConfig().
			sets(kindJoin, "dryRun", func(d *documents, v bool) { d.join.DryRun = v }).
			forCommands("join"),
		text("kubeconfig", DefaultAdminKubeconfig, "kubeconfig `file` for access to the cluster").
			forCommands("init phase", "config", upgradeApply, upgradeNode, upgradePlan, upgradeDiff, upgradeRollback),
		text("kubeconfig", DefaultAdminKubeconfig, "kubeconfig `file` used to find the other etcd members").forCommands("reset"),
		text("kubeconfig", DefaultAdminKubeconfig, "kubeconfig `file` for access to the cluster; unless given, KUBECONFIG and ~/.kube/config are tried as well").
			forCommands("certs check-expiration", "certs renew", "token"),
		toggle("print-manifest", "print the add-on's objects instead of installing them").forCommands("init phase"),
		list("skip-phases", nil, "`phases` to skip").allowWithConfig().
			sets(kindInit, "skipPhases", func(d *documents, v []string) { d.init.SkipPhases = v }).
			sets(kindJoin, "skipPhases", func(d *documents, v []string) { d.join.SkipPhases = v }).
			sets(kindReset, "skipPhases", func(d *documents, v []string) { d.reset.SkipPhases = v }).
			sets(kindUpgrade, "apply.skipPhases", func(d *documents, v []string) { d.upgrade.Apply.SkipPhases = v }).
			sets(kindUpgrade, "node.skipPhases", func(d *documents, v []string) { d.upgrade.Node.SkipPhases = v }).
			forCommands("init", "join", "reset", upgradeApply, upgradeNode, hostPrepare, hostReset),
	}
}

func nodeFlags() []flagRow {
	return []flagRow{
		text("cri-socket", "", "`socket` of the container runtime; detected unless several runtimes are installed").
			sets(kindInit, "nodeRegistration.criSocket", func(d *documents, v string) { d.init.NodeRegistration.CRISocket = v }).
			sets(kindJoin, "nodeRegistration.criSocket", func(d *documents, v string) { d.join.NodeRegistration.CRISocket = v }).
			forCommands("init", "join", "preflight init", "preflight join", "config images pull", hostPrepare),
		text("cri-socket", "", "`socket` of the container runtime; defaults to the one the kubelet uses").
			sets(kindReset, "criSocket", func(d *documents, v string) { d.reset.CRISocket = v }).
			forCommands("reset", "diagnose", "support-bundle"),
		toggle("enable-kubelet", "enable the kubelet's systemd unit, so that it starts at boot").forCommands("init"),
		list("ignore-preflight-errors", nil, "`checks` whose errors are reported as warnings; all means every check except the guards of data and access").allowWithConfig().
			sets(kindInit, "nodeRegistration.ignorePreflightErrors", func(d *documents, v []string) { d.init.NodeRegistration.ignore(v) }).
			sets(kindJoin, "nodeRegistration.ignorePreflightErrors", func(d *documents, v []string) { d.join.NodeRegistration.ignore(v) }).
			sets(kindReset, "ignorePreflightErrors", func(d *documents, v []string) {
				d.reset.IgnorePreflightErrors = slices.Concat(d.reset.IgnorePreflightErrors, v)
			}).
			sets(kindUpgrade, "apply.ignorePreflightErrors", func(d *documents, v []string) {
				u := d.upgrade
				u.Apply.IgnorePreflightErrors = slices.Concat(u.Apply.IgnorePreflightErrors, v)
				u.Node.IgnorePreflightErrors = slices.Concat(u.Node.IgnorePreflightErrors, v)
				u.Plan.IgnorePreflightErrors = slices.Concat(u.Plan.IgnorePreflightErrors, v)
			}).
			forCommands("init", "join", "reset", "preflight init", "preflight join", upgradeApply, upgradeNode, upgradePlan, upgradeRollback, etcdRestore, etcdRecover, hostPrepare, hostReset,
				reconfigureCommand, reconfigureNode, encryptionEnable),
		text("node-name", "", "`name` of this node; defaults to the hostname").allowWithConfig().
			sets(kindInit, "nodeRegistration.name", func(d *documents, v string) { d.init.NodeRegistration.Name = v }).
			sets(kindJoin, "nodeRegistration.name", func(d *documents, v string) { d.join.NodeRegistration.Name = v }).
			forCommands("init", "join", "preflight init", "preflight join"),
		text("patches", "", "`directory` of patches for generated files, named TARGET[SUFFIX][+TYPE].EXT").
			sets(kindInit, "patches.directory", func(d *documents, v string) { d.init.Patches = &Patches{Directory: v} }).
			sets(kindJoin, "patches.directory", func(d *documents, v string) { d.join.Patches = &Patches{Directory: v} }).
			sets(kindUpgrade, "apply.patches.directory", func(d *documents, v string) { d.upgrade.Apply.Patches = &Patches{Directory: v} }).
			sets(kindUpgrade, "node.patches.directory", func(d *documents, v string) { d.upgrade.Node.Patches = &Patches{Directory: v} }).
			forCommands("init", "join", "preflight init", "preflight join", upgradeApply, upgradeNode, upgradePlan, upgradeDiff,
				reconfigureCommand, reconfigureNode, encryptionEnable),
	}
}

// apiServerFlags set nothing on a node that joins as a worker.
func apiServerFlags() []flagRow {
	return []flagRow{
		toggle("control-plane", "join as a control plane").
			sets(kindJoin, "", func(d *documents, v bool) { // without a path: a fault below controlPlane names its own field
				if v {
					d.join.ControlPlane = &JoinControlPlane{}
				}
			}).
			forCommands("join", "preflight join"),
		text("apiserver-advertise-address", "", "`IP` address that the API server advertises; defaults to the address of the default route").
			sets(kindInit, "localAPIEndpoint.advertiseAddress", func(d *documents, v string) { d.init.LocalAPIEndpoint.AdvertiseAddress = v }).
			sets(kindJoin, joinControlPlane+"localAPIEndpoint.advertiseAddress", onControlPlane(func(c *JoinControlPlane, v string) { c.LocalAPIEndpoint.AdvertiseAddress = v })).
			forCommands("init", "join", "preflight init", "preflight join"),
		number("apiserver-bind-port", DefaultBindPort, "port on which the API server listens").
			sets(kindInit, "localAPIEndpoint.bindPort", func(d *documents, v int32) { d.init.LocalAPIEndpoint.BindPort = v }).
			sets(kindJoin, joinControlPlane+"localAPIEndpoint.bindPort", onControlPlane(func(c *JoinControlPlane, v int32) { c.LocalAPIEndpoint.BindPort = v })).
			forCommands("init", "join", "preflight init", "preflight join"),
		list("apiserver-cert-extra-sans", nil, "additional DNS `names` and IP addresses for the API server's certificate").
			sets(kindCluster, "apiServer.certSANs", func(d *documents, v []string) { d.cluster.APIServer.CertSANs = v }).
			forCommands("init"),
	}
}

func clusterFlags() []flagRow {
	return []flagRow{
		text("control-plane-endpoint", "", "`host[:port]` at which clients reach the control plane, such as a load balancer; needed to add control planes, and `slipway reconfigure` can set it later").
			sets(kindCluster, "controlPlaneEndpoint", func(d *documents, v string) { d.cluster.ControlPlaneEndpoint = v }).
			forCommands("init", "preflight init"),
		text("feature-gates", "", "feature `gates`, as NAME=true,NAME=false: "+gateRootless+" (false by default, alpha)").
			sets(kindCluster, "featureGates", func(d *documents, v string) { d.cluster.FeatureGates = d.parseGates(v) }).
			offers(gateRootless+"=true").
			forCommands("init", "preflight init", "config images list", "config images pull"),
		text("profile", "", "`profile` that hardens the cluster: audit, cis or cis-strict; each includes the one before").
			offers(profile.Names()...).
			forCommands("init", "preflight init"),
		text("image-repository", DefaultImageRepository, "`registry` to pull control plane images from").
			sets(kindCluster, "imageRepository", func(d *documents, v string) { d.cluster.ImageRepository = v }).
			forCommands("init", "config images list", "config images pull"),
		text("kubernetes-version", DefaultKubernetesVersion, "Kubernetes `version` of the control plane").
			sets(kindCluster, "kubernetesVersion", func(d *documents, v string) { d.cluster.KubernetesVersion = v }).
			forCommands("init", "preflight init", "config images list", "config images pull"),
	}
}

func networkFlags() []flagRow {
	return []flagRow{
		text("network", NoNetwork, "the Pod network to install: none, flannel, or the `file` of a manifest; - reads standard input").
			offers(NoNetwork, Flannel).
			forCommands("init", "preflight init", "config images list", "config images pull"),
		text("pod-network-cidr", "", "`CIDR` of the Pod network; two, separated by a comma, for dual stack").
			sets(kindCluster, "networking.podSubnet", func(d *documents, v string) { d.cluster.Networking.PodSubnet = v }).
			forCommands("init", "preflight init"),
		text("service-cidr", defaultServiceSubnet, "`CIDR` of Service addresses; two, separated by a comma, for dual stack").
			sets(kindCluster, "networking.serviceSubnet", func(d *documents, v string) { d.cluster.Networking.ServiceSubnet = v }).
			forCommands("init", "preflight init"),
		text("service-dns-domain", defaultDNSDomain, "DNS `domain` of Services").
			sets(kindCluster, "networking.dnsDomain", func(d *documents, v string) { d.cluster.Networking.DNSDomain = v }).
			forCommands("init"),
	}
}

func certificateFlags() []flagRow {
	return []flagRow{
		text("cert-dir", DefaultCertificatesDir, "certificates `directory`").
			sets(kindCluster, "certificatesDir", func(d *documents, v string) { d.cluster.CertificatesDir = v }).
			forCommands("init", "preflight init", "certs check-expiration", "certs renew"),
		text("cert-dir", "", "certificates `directory`").forCommands("certs generate-csr"),
		text("cert-dir", DefaultCertificatesDir, "certificates `directory`; if it is not the default, only files of a control plane are removed from it").
			sets(kindReset, "certificatesDir", func(d *documents, v string) { d.reset.CertificatesDir = v }).
			forCommands("reset"),
		text("certificate-key", "", "`key` that encrypts and decrypts the shared certificates: 64 hexadecimal digits").
			sets(kindInit, "certificateKey", func(d *documents, v string) { d.init.CertificateKey = v }).
			sets(kindJoin, joinControlPlane+"certificateKey", onControlPlane(func(c *JoinControlPlane, v string) { c.CertificateKey = v })).
			forCommands("init", "join"),
		text("certificate-key", "", "with --print-join-command: `key` that decrypts the shared certificates (64 hexadecimal digits), to print the command for a control plane").
			forCommands("token create"),
		text("kubeconfig-dir", DefaultKubernetesDir, "`directory` for kubeconfig files").forCommands("init phase", "certs generate-csr"),
		toggle("skip-certificate-key-print", "do not print the certificate key").forCommands("init"),
		toggle("upload-certs", "share the control plane's certificates through the cluster, encrypted, for two hours").forCommands("init"),
	}
}

func initTokenFlags() []flagRow {
	first := func(d *documents) *BootstrapToken {
		if len(d.init.BootstrapTokens) == 0 {
			d.init.BootstrapTokens = []BootstrapToken{{Description: defaultTokenDescription}}
		}
		return &d.init.BootstrapTokens[0]
	}
	return []flagRow{
		toggle("skip-token-print", "do not print the bootstrap token").forCommands("init"),
		text("token", "", "bootstrap `token`, of the form [a-z0-9]{6}.[a-z0-9]{16}; generated by default").
			sets(kindInit, "bootstrapTokens[0].token", func(d *documents, v string) { first(d).Token = v }).
			forCommands("init"),
		duration("token-ttl", defaultTokenTTL, "token lifetime; 0 means it never expires").
			sets(kindInit, "bootstrapTokens[0].ttl", func(d *documents, v time.Duration) { first(d).TTL = &metav1.Duration{Duration: v} }).
			forCommands("init"),
	}
}

func joinFlags() []flagRow {
	const byToken = "discovery.bootstrapToken."
	return []flagRow{
		toggle("control-plane", "with --print-join-command: share the certificates again, and print the command for a control plane").
			forCommands("token create"),
		text("discovery-file", "", "kubeconfig `file`, or https URL of one, with the cluster's address and CA").
			sets(kindJoin, "discovery.file.kubeConfigPath", func(d *documents, v string) { d.join.Discovery.File = &FileDiscovery{v} }).
			forCommands("join", "preflight join"),
		text("token", "", "`token` for both discovery and TLS bootstrap").
			sets(kindJoin, "discovery.tlsBootstrapToken", func(d *documents, v string) { d.join.Discovery.TLSBootstrapToken = v }).
			sets(kindJoin, byToken+"token", onDiscovery(func(t *BootstrapTokenDiscovery, v string) { t.Token = v })).
			forCommands("join", "preflight join"),
		text("token-file", "", "`file` with the token, which keeps it out of the process list; - reads standard input").
			forCommands("join", "preflight join"),
		text("tls-bootstrap-token", "", "`token` with which the kubelet requests its client certificate").
			sets(kindJoin, "discovery.tlsBootstrapToken", func(d *documents, v string) { d.join.Discovery.TLSBootstrapToken = v }).
			forCommands("join", "preflight join"),
		text("discovery-token", "", "`token` that authenticates the cluster information").
			sets(kindJoin, byToken+"token", onDiscovery(func(t *BootstrapTokenDiscovery, v string) { t.Token = v })).
			forCommands("join", "preflight join"),
		list("discovery-token-ca-cert-hash", nil, "expected `hash` of the cluster's CA: sha256:HEX").
			sets(kindJoin, byToken+"caCertHashes", onDiscovery(func(t *BootstrapTokenDiscovery, v []string) { t.CACertHashes = v })).
			forCommands("join", "preflight join"),
		toggle("discovery-token-unsafe-skip-ca-verification", "trust the cluster's CA without checking its hash").
			sets(kindJoin, byToken+"unsafeSkipCAVerification", onDiscovery(func(t *BootstrapTokenDiscovery, v bool) { t.UnsafeSkipCAVerification = v })).
			forCommands("join", "preflight join"),
	}
}

// joinControlPlane begins the fields that only a joining control plane has.
const joinControlPlane = "controlPlane."

func onControlPlane[T any](set func(c *JoinControlPlane, value T)) func(*documents, T) {
	return func(d *documents, value T) {
		if c := d.join.ControlPlane; c != nil {
			set(c, value)
		}
	}
}

func onDiscovery[T any](set func(t *BootstrapTokenDiscovery, value T)) func(*documents, T) {
	return func(d *documents, value T) {
		if t := d.join.Discovery.BootstrapToken; t != nil {
			set(t, value)
		}
	}
}

func (r *NodeRegistrationOptions) ignore(checks []string) {
	r.IgnorePreflightErrors = slices.Concat(r.IgnorePreflightErrors, checks)
}

// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// flagAdvice has remedies for removed flags, beyond removing them. Unmarked numbers are pull requests of kubernetes/kubernetes.
var flagAdvice = map[string]string{
	"concurrent-service-syncs":  "remove it: Services of type LoadBalancer belong to the cloud controller manager", // #138002
	"pod-infra-container-image": "remove it, and set the sandbox image in the container runtime's configuration",   // #133779
}

// etcdGates maps etcd's removed flags to feature gates, if the name doesn't just lose "experimental-" (etcd#19959).
var etcdGates = map[string]string{
	"experimental-stop-grpc-service-on-defrag":       "StopGRPCServiceOnDefrag",
	"experimental-initial-corrupt-check":             "InitialCorruptCheck",
	"experimental-compact-hash-check-enabled":        "CompactHashCheck",
	"experimental-txn-mode-write-with-shared-buffer": "TxnModeWriteWithSharedBuffer",
	"experimental-enable-lease-checkpoint":           "LeaseCheckpoint",
	"experimental-enable-lease-checkpoint-persist":   "LeaseCheckpointPersist",
}

// commands checks the control plane's components; etcd checks its members' flags, and proxies kube-proxy's.
func (c *checker) commands() {
	for _, command := range c.Commands {
		if command.Program != releases.Etcd && command.Program != releases.Proxy {
			c.command(command)
		}
	}
}

func (c *checker) command(command Command) {
	c.elsewhere = command.Running
	defer func() { c.elsewhere = false }()
	c.flags(command.Where, c.flagsOf(command.Program), command.Args)
	c.gates(command.Where, command.Program, gatesOf(command.Args))
	switch command.Program {
	case releases.APIServer:
		c.runtimeConfig(command)
		c.admissionPlugins(command)
	case releases.ControllerManager:
		c.flexVolumes(command)
	}
}

type flagSet struct {
	program, release string
	has              func(name string) bool
	files            map[string]string // a flag's file, if a program has them in several
}

func (c *checker) flagsOf(program string) flagSet {
	return flagSet{program: program, release: c.release.Minor, has: func(name string) bool { return c.release.HasFlag(program, name) }}
}

// isKnown reports whether a flag is certainly the program's. The kubelet and kube-proxy may have wrappers with flags of their own,
// and the files of the kubelet's unit may have unused flags. They run, so a flag that no release has isn't theirs.
func (known flagSet) isKnown(name string) bool {
	return known.program != releases.Kubelet && known.program != releases.Proxy || releases.EverHadFlag(known.program, name)
}

// flags finds flags the program doesn't have any more: it wouldn't start.
func (c *checker) flags(where string, known flagSet, args []config.Arg) {
	for _, arg := range args {
		if known.has(arg.Name) {
			continue
		}
		f := fault.Finding{Name: "flag-removed", Severity: fault.Error, Subject: where, Field: "--" + arg.Name,
			Message: fmt.Sprintf("%s: %s %s has no flag --%s", where, known.program, known.release, arg.Name),
			Remedy:  known.replacement(arg)}
		if file := known.files[arg.Name]; file != "" {
			f.Message += ", which is in " + file
		}
		if !known.isKnown(arg.Name) {
			f.Severity = fault.Warning
			f.Remedy = "remove the flag, unless it's another program's"
		}
		if known.program == releases.Kubelet && arg.Name == "pod-infra-container-image" {
			f.Remedy += "; the upgrade removes it from kubeadm-flags.env by itself"
		}
		c.add(f)
	}
}

func (c *checker) programName(program string) string { return program + " " + c.release.Minor }

func (known flagSet) replacement(arg config.Arg) string {
	name, experimental := strings.CutPrefix(arg.Name, "experimental-")
	switch {
	case flagAdvice[arg.Name] != "":
		return flagAdvice[arg.Name]
	case known.program == releases.Etcd && etcdGates[arg.Name] != "":
		on := arg.Value == "" || arg.Value == "true"
		return fmt.Sprintf("use --feature-gates=%s=%t instead", etcdGates[arg.Name], on)
	case experimental && known.has(name):
		return "use --" + name + " instead"
	}
	return "remove the flag"
}

// runtimeConfig finds versions in --runtime-config that the API server doesn't know, so it doesn't start, or no longer serves.
func (c *checker) runtimeConfig(command Command) {
	for _, arg := range command.Args {
		if arg.Name != "runtime-config" {
			continue
		}
		for _, item := range strings.Split(arg.Value, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(item), "=")
			parts := strings.Split(key, "/")
			if len(parts) < 2 || parts[0] == "api" {
				continue // api/all and the like, and v1
			}
			version := parts[0] + "/" + parts[1]
			f := fault.Finding{Name: "runtime-config", Subject: command.Where, Field: key}
			f.Remedy = "move its users to another version, delete what is stored in it, and remove it from --runtime-config"
			switch {
			case !c.release.KnowsVersion(version):
				f.Severity = fault.Error
				f.Message = fmt.Sprintf("%s: --runtime-config names %s, which Kubernetes %s does not have", command.Where, version, c.release.Minor)
			case !c.release.ServesVersion(version) && value != "false":
				f.Message = fmt.Sprintf("%s: --runtime-config names %s, in which Kubernetes %s serves nothing", command.Where, version, c.release.Minor)
			default:
				continue
			}
			c.add(f)
		}
	}
}

var admissionFlags = []string{"enable-admission-plugins", "disable-admission-plugins", "admission-control"}

func (c *checker) admissionPlugins(command Command) {
	for _, arg := range command.Args {
		if !slices.Contains(admissionFlags, arg.Name) {
			continue
		}
		for _, name := range strings.Split(arg.Value, ",") {
			if name == "" || c.release.HasAdmissionPlugin(name) {
				continue
			}
			c.add(fault.Finding{Name: "admission-plugin-removed", Severity: fault.Error, Subject: command.Where, Field: name,
				Message: fmt.Sprintf("%s: --%s names %s, which Kubernetes %s does not have", command.Where, arg.Name, name, c.release.Minor),
				Remedy:  "remove the plugin from --" + arg.Name})
		}
	}
}

// flexVolumes: since 1.36, the controller manager's manifest doesn't mount the directory of flex volumes (#136423).
func (c *checker) flexVolumes(command Command) {
	dir, set := config.LastArg(command.Args, "flex-volume-plugin-dir")
	if !c.reaches("1.36") || !set || slices.Contains(command.Mounts, dir) {
		return
	}
	c.add(fault.Finding{Name: "flex-volume-mount", Subject: command.Where, Field: "--flex-volume-plugin-dir",
		Message: fmt.Sprintf("%s: the manifest for Kubernetes 1.36 does not mount %s, where its flex volume plugins are", command.Where, dir),
		Remedy:  "add the directory to controllerManager.extraVolumes"})
}

// gatesOf returns the feature gates on a command line; the last of a name counts. Gates of aggregated API servers and the like
// have the component's name and a colon in front.
func gatesOf(args []config.Arg) map[string]bool {
	gates := map[string]bool{}
	for _, arg := range args {
		if arg.Name != "feature-gates" {
			continue
		}
		for _, item := range strings.Split(arg.Value, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
			name = strings.TrimPrefix(name, "kube:")
			if on, err := strconv.ParseBool(value); err == nil && !strings.Contains(name, ":") {
				gates[name] = on
			}
		}
	}
	return gates
}

// gates finds feature gates that keep a program from starting: unknown gates, gates locked to another value, and gates whose
// requirements are off (#133697, since 1.35).
func (c *checker) gates(where, program string, set map[string]bool) {
	if len(set) == 0 {
		return
	}
	known, refused := c.release.Gates(program), false
	for _, name := range slices.Sorted(maps.Keys(set)) {
		gate, ok := known[name]
		f := fault.Finding{Severity: fault.Error, Subject: where, Field: name, Remedy: "remove the gate"}
		switch {
		case !ok:
			f.Name = "gate-removed"
			f.Message = fmt.Sprintf("%s: %s has no feature gate %s", where, c.programName(program), name)
		case gate.Locked && gate.On != set[name]:
			f.Name = "gate-locked"
			f.Message = fmt.Sprintf("%s: in %s, feature gate %s is locked to %t, and cannot be %t",
				where, c.programName(program), name, gate.On, set[name])
		default:
			continue
		}
		c.add(f)
		refused = true
	}
	if !refused { // like the programs, which look at the others only then
		c.neededGates(where, program, known, set)
	}
}

func (c *checker) neededGates(where, program string, known map[string]releases.Gate, set map[string]bool) {
	on := releases.Enabled(known, set)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		var off []string
		for _, needed := range known[name].Needs {
			if !on[needed] {
				off = append(off, needed)
			}
		}
		if !on[name] || len(off) == 0 {
			continue
		}
		remedy := fmt.Sprintf("set %s=true too, or %s=false", strings.Join(off, "=true and "), name)
		if _, explicit := set[name]; !explicit && set[releases.AllAlpha] {
			remedy = "list the gates that are wanted instead of " + releases.AllAlpha + "; or " + remedy
		}
		c.add(fault.Finding{Name: "gate-dependency", Severity: fault.Error, Subject: where, Field: name + " needs " + strings.Join(off, ", "),
			Message: fmt.Sprintf("%s: in %s, feature gate %s is on and needs %s, which is off", where, c.programName(program), name, strings.Join(off, ", ")),
			Remedy:  remedy})
	}
}

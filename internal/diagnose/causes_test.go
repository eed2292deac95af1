// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/dial"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/golden"
)

// row is a way to break the fake host, with the expected cause and facts of its finding.
type row struct {
	cause, name string
	hurt        func(h *fakeHost)
	want        string // facts, each after "; "; empty: nothing is found
	// passes means the cause must never end a wait.
	passes bool
}

const head = "E1121 09:00:00.000000    1234 run.go:72] "

func kubeletRows() []row {
	unit := func(s host.UnitState) func(h *fakeHost) {
		return func(h *fakeHost) { h.Has.Units[kubeletService] = s }
	}
	failed := func(words string) func(h *fakeHost) {
		return func(h *fakeHost) { h.died(head + `"command failed" err="` + words + `"`) }
	}
	const swapWords = "failed to run Kubelet: running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
	return []row{
		{"kubelet-unit", "missing", unit(host.UnitState{LoadState: "not-found"}), "kubelet.service; systemd; `systemctl daemon-reload`", false},
		{"kubelet-unit", "masked", unit(host.UnitState{LoadState: "masked"}), "masked; `systemctl unmask kubelet`", false},
		{"kubelet-unit", "broken", unit(host.UnitState{LoadState: "bad-setting"}), "bad-setting; `systemctl status kubelet`", false},
		{"kubelet-unit", "stopped", unit(host.UnitState{LoadState: "loaded", ActiveState: "inactive"}), "kubelet.service; stopped; `systemctl start kubelet`", false},
		{"kubelet-unit", "no init system", func(h *fakeHost) { h.Fail["Unit"] = host.ErrNoSystemd }, "kubelet.service; /run/systemd/system", true},
		{"kubelet-unit", "no init system, and a kubelet", func(h *fakeHost) {
			h.Fail["Unit"], h.Has.Held[10250] = host.ErrNoSystemd, host.Process{PID: 7, Name: "kubelet"}
		}, "", false},
		{"kubelet-unit", "starting", unit(host.UnitState{LoadState: "loaded", ActiveState: "activating"}), "", false},
		{"swap", "on", func(h *fakeHost) { h.Has.Swap = []string{"/dev/sda2"}; failed(swapWords)(h) }, "/dev/sda2; `slipway host prepare phase swap`; failSwapOn: false", false},
		{"swap", "turned off meanwhile", failed(swapWords), "", false},
		{"cgroup-version", "1", failed("failed to validate kubelet configuration, error: kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported"), "failCgroupV1: false; systemd.unified_cgroup_hierarchy=1", false},
		{"kubelet-config", "that is the cgroups' fault", failed("failed to validate kubelet configuration, error: kubelet is configured to not run on a host using cgroup v1"), "", false},
		{"cgroup-driver", "of the runtime", func(h *fakeHost) {
			h.insisted(`E1121 "Failed to create sandbox" err="expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got \"/kubepods/x\" instead"`)
		}, "is systemd; cgroupDriver; SystemdCgroup", false},
		{"pod-sandbox", "without its name servers", func(h *fakeHost) {
			h.said(`E1121 "Failed to generate sandbox config for pod" err="open /run/systemd/resolve/resolv.conf: no such file or directory" pod="kube-system/kube-proxy-x"`)
		}, "/run/systemd/resolve/resolv.conf; resolvConf; kube-system/kubelet-config", false},
		{"pod-sandbox", "with name servers meanwhile", func(h *fakeHost) {
			h.put("/run/systemd/resolve/resolv.conf", "")
			h.said(`E1121 "Failed to generate sandbox config for pod" err="open /run/systemd/resolve/resolv.conf: no such file or directory" pod="kube-system/kube-proxy-x"`)
		}, "", false},
		{"pod-sandbox", "refused by the runtime", func(h *fakeHost) {
			h.insisted(`E1121 "CreatePodSandbox for pod failed" err="failed to "CreatePodSandbox" for "kube-proxy-x" with CreatePodSandboxError: runc: executable file not found in $PATH"`)
		}, "every Pod's sandbox; runc; `journalctl -u containerd.service`", false},
		{"pod-sandbox", "of a network that is not there yet", func(h *fakeHost) {
			h.insisted(`E1121 "Failed to create sandbox for pod" err="rpc error: failed to setup network for sandbox "x": plugin type="flannel" failed (add): open /run/flannel/subnet.env: no such file or directory"`)
		}, "", false},
		{"cgroup-driver", "of a look in passing", func(h *fakeHost) { h.saidBefore(`E1121 "x" err="expected cgroupsPath to be of format slice"`) }, "", false},
		{"swap", "of a kubelet that runs on", func(h *fakeHost) { h.Has.Swap = []string{"/dev/sda2"}; h.said(swapWords) }, "", false},
		{"kubelet-config", "said in passing by a kubelet that has just begun", func(h *fakeHost) {
			h.Has.Units[kubeletService] = host.UnitState{LoadState: "loaded", ActiveState: "active", SubState: "running", ActiveSince: at.Add(-3 * time.Second)}
			h.said("W1121 feature_gate.go:352] unrecognized feature gate: New")
		}, "", false},
		{"kubelet-config", "of the process before the running one", func(h *fakeHost) {
			h.Has.Units[kubeletService] = host.UnitState{LoadState: "loaded", ActiveState: "active", SubState: "running", ActiveSince: at.Add(-time.Second)}
			h.said("E1121 failed to validate kubelet configuration")
		}, "/var/lib/kubelet/config.yaml; KubeletConfiguration", false},
		{"bad-flag", "systemd does not answer", func(h *fakeHost) {
			h.Fail["Unit"] = errors.New("the bus does not answer")
			h.said(`E1121 "Failed" err="unknown flag: --x"`)
		}, "", false},
		{"kubelet-config", "its certificate is still asked for", failed("unable to read existing bootstrap client config from /etc/kubernetes/kubelet.conf: invalid configuration: [unable to read client-cert /var/lib/kubelet/pki/kubelet-client-current.pem"), "", false},
		{"kubelet-config", "invalid", failed("failed to validate kubelet configuration, error: invalid configuration: maxPods"), "/var/lib/kubelet/config.yaml; KubeletConfiguration; maxPods", false},
		{"kubelet-config", "missing", func(h *fakeHost) {
			h.remove("/var/lib/kubelet/config.yaml")
			failed("failed to load kubelet config file, path: /var/lib/kubelet/config.yaml")(h)
		}, "/var/lib/kubelet/config.yaml; not exist; `slipway init`; `slipway join`", false},
		{"bad-flag", "of the kubelet", failed("failed to parse kubelet flag: unknown flag: --nonsense"), "nodeRegistration.kubeletExtraArgs; KUBELET_EXTRA_ARGS; /etc/default/kubelet", false},
		{"kubelet-crash", "twice", func(h *fakeHost) { failed("no")(h); failed("no")(h) }, "kubelet.service; auto-restart; 0 times; exit-code; `journalctl -u kubelet`", false},
		{"kubelet-crash", "once", failed("no"), "", false},
		{"kubelet-crash", "twice, differently", func(h *fakeHost) {
			failed("no")(h)
			h.Has.Journal[0].Time, h.Has.Journal[1].Time = at.Add(-6*time.Second), at.Add(-5*time.Second)
			failed("no, and for another reason")(h)
		}, "keeps crashing; another reason", true},
		{"kubelet-crash", "killed by a watchdog", func(h *fakeHost) {
			for range 2 {
				h.died("")
				h.Has.Journal[len(h.Has.Journal)-1].Message = "kubelet.service: Main process exited, code=dumped, status=6/ABRT"
			}
		}, "status=6/ABRT", true},
		{"kubelet-crash", "without a word", func(h *fakeHost) { h.died(""); h.died("") }, "Main process; code=exited; status=1/FAILURE", false},
		{"kubelet-crash", "gave up", unit(host.UnitState{LoadState: "loaded", ActiveState: "failed", Result: "oom-kill"}), "oom-kill", false},
		{"kubelet-crash", "as something is not there yet", func(h *fakeHost) {
			failed("dial tcp 192.0.2.11:6443: connect: connection refused")(h)
			failed("dial tcp 192.0.2.11:6443: connect: connection refused")(h)
		}, "connection refused", true},
		{"port-taken", "the kubelet's", func(h *fakeHost) {
			h.Has.Held[10248] = host.Process{PID: 9, Name: "nginx"}
			h.said(`E1121 "Failed to start healthz server" err="listen tcp 127.0.0.1:10248: bind: address already in use"`)
		}, "kubelet; port 10248; nginx (process 9)", false},
		{"port-taken", "that a Pod wants", func(h *fakeHost) {
			h.Has.Held[8080] = host.Process{PID: 9, Name: "nginx"}
			h.said(`E1121 "RunPodSandbox from runtime service failed" err="listen tcp 0.0.0.0:8080: bind: address already in use" pod="default/web"`)
		}, "", false},
		{"port-taken", "the kubelet's, by itself", func(h *fakeHost) {
			h.Has.Held[10250] = host.Process{PID: 7, Name: "kubelet"}
			h.said(`E1121 "Failed" err="listen tcp 0.0.0.0:10250: bind: address already in use"`)
		}, "", false},
	}
}

func runtimeRows() []row {
	pull := func(answer string) func(h *fakeHost) {
		return func(h *fakeHost) {
			h.crashed("kube-scheduler")
			h.Has.Containers = slices.DeleteFunc(h.Has.Containers, func(c host.ContainerState) bool { return c.Name == "kube-scheduler" })
			h.absent["registry.k8s.io/kube-scheduler:v1"] = true
			h.said(`E1121 "PullImage from image service failed" err="` + answer + `" image="registry.k8s.io/kube-scheduler:v1"`)
		}
	}
	return []row{
		{"runtime-down", "no socket", func(h *fakeHost) { h.noRuntime() }, "unix:///run/containerd/containerd.sock; such socket; `systemctl start containerd.service`", false},
		{"runtime-down", "stopped", func(h *fakeHost) {
			h.noRuntime()
			h.Has.Units["containerd.service"] = host.UnitState{LoadState: "loaded", ActiveState: "inactive", SubState: "dead", Result: "success"}
		}, "unit containerd.service: loaded, inactive (dead)", false},
		{"runtime-down", "not installed", func(h *fakeHost) {
			h.noRuntime()
			h.Has.Units["containerd.service"] = host.UnitState{LoadState: "not-found"}
		}, "not-found; criSocket; --cri-socket", false},
		{"runtime-down", "hanging", func(h *fakeHost) { h.Fail["ContainerStates"] = context.DeadlineExceeded }, "unix:///run/containerd/containerd.sock; deadline exceeded", false},
		{"runtime-down", "not ready", func(h *fakeHost) { h.Has.Runtime = &host.RuntimeInfo{Reason: "still loading"} }, "still loading", false},
		{"image", "not found", pull(`code = NotFound desc = failed to pull and unpack image: failed to resolve reference: registry.k8s.io/kube-scheduler:v1: not found`), "kube-scheduler; image registry.k8s.io/kube-scheduler:v1; imageRepository; `slipway config images pull`", false},
		{"image", "the runtime has lost a part, once", pull(`code = NotFound desc = failed to extract layer: content digest: not found`), "content digest", true},
		{"image", "of a registry with a port, once", func(h *fakeHost) {
			h.pod("kube-scheduler")
			const pod = manifestDir + "/kube-scheduler.yaml"
			h.put(pod, strings.ReplaceAll(fixture.Get(h.t, h.Root, pod), "registry.k8s.io/", "registry.example.org:5000/"))
			h.names["registry.example.org:5000"] = true
			h.Has.Containers = slices.DeleteFunc(h.Has.Containers, func(c host.ContainerState) bool { return c.Name == "kube-scheduler" })
			h.absent["registry.example.org:5000/kube-scheduler:v1"] = true
			h.said(`E1121 "PullImage from image service failed" err="i/o timeout" image="registry.example.org:5000/kube-scheduler:v1"`)
		}, "i/o timeout", true},
		{"image", "no network, once", pull("dial tcp: i/o timeout"), "i/o timeout", true},
		{"image", "no network, twice", func(h *fakeHost) {
			pull("dial tcp: i/o timeout")(h)
			h.Has.Journal[0].Time = at.Add(-10 * time.Second)
			pull("dial tcp: i/o timeout")(h)
		}, "i/o timeout", false},
		{"image", "no such registry", func(h *fakeHost) { h.names["registry.k8s.io"] = true; pull("dial tcp: server misbehaving")(h) }, "server misbehaving", false},
		{"image", "pulled meanwhile", func(h *fakeHost) { pull("failed to resolve: not found")(h); clear(h.absent) }, "", false},
		{"image", "of the sandbox", func(h *fakeHost) {
			h.absent["registry.k8s.io/pause:3.10"] = true
			const line = `E1121 "RunPodSandbox from runtime service failed" err="rpc error: failed to get sandbox image \"registry.k8s.io/pause:3.10\": failed to pull"`
			h.said(line)
			h.Has.Journal[0].Time = at.Add(-10 * time.Second)
			h.said(line)
		}, "image registry.k8s.io/pause:3.10", false},
		{"disk-full", "etcd's", func(h *fakeHost) {
			h.Has.Space["/var/lib/etcd"] = host.Space{Free: 1 << 20, Total: 9 << 20}
			h.crashed("etcd", `{"level":"panic","msg":"failed to create WAL","error":"no space left on device"}`)
		}, "/var/lib/etcd; 1 MiB of 9 MiB; WAL: no space; `du -xh --max-depth=2 /var/lib/etcd`", false},
		{"disk-full", "without inodes", func(h *fakeHost) {
			h.Has.Space["/var/lib/kubelet"] = host.Space{Free: 9 << 30, Total: 10 << 30, FreeInodes: 0, TotalInodes: 5}
			h.said(`E1121 "x" err="mkdir: no space left on device"`)
		}, "/var/lib/kubelet; 0 of 5 inodes", false},
		{"disk-full", "of a runtime with its own root", func(h *fakeHost) {
			h.put("/data/containerd/x", "")
			h.Has.ImageDir, h.Has.Space["/data/containerd"] = "/data/containerd", host.Space{Free: 1 << 20, Total: 10 << 30}
			h.said(`E1121 "x" err="no space left on device"`)
		}, "/data/containerd; 1 MiB of 10240 MiB", false},
		{"disk-full", "a small file system", func(h *fakeHost) {
			h.put("/tmp/x", "")
			h.Has.Space["/tmp"] = host.Space{Free: 40 << 20, Total: 50 << 20}
			h.said(`E1121 "x" err="no space left on device"`)
		}, "", false},
		{"disk-full", "no more inotify watches", func(h *fakeHost) {
			h.Has.Space["/var/lib/kubelet"] = host.Space{Free: 1 << 20, Total: 10 << 30}
			h.said(`E1121 "Failed to watch directory" err="inotify_add_watch /sys/fs/cgroup: no space left on device"`)
		}, "", false},
		{"disk-full", "space was made", func(h *fakeHost) { h.said(`E1121 "x" err="no space left on device"`) }, "", false},
		{"disk-full", "and nobody complains", func(h *fakeHost) { h.Has.Space["/var/lib/etcd"] = host.Space{Free: 1} }, "", false},
	}
}

func podRows() []row {
	const crash = head + `"command failed" err="out of cheese"`
	lost := func(name string) func(h *fakeHost) {
		return func(h *fakeHost) {
			h.Has.Containers = slices.DeleteFunc(h.Has.Containers, func(c host.ContainerState) bool { return c.Name == name })
		}
	}
	return []row{
		{"bad-flag", "a feature gate that is gone", func(h *fakeHost) {
			h.crashed("kube-apiserver", `E1123 09:32:18 1 run.go:72] "command failed" err="unrecognized feature gate: SidecarContainers"`)
		}, manifestDir + "/kube-apiserver.yaml", false},
		{"bad-flag", "of a static Pod", func(h *fakeHost) { h.crashed("kube-apiserver", "Error: unknown flag: --nonsense") }, manifestDir + "/kube-apiserver.yaml", false},
		{"bad-flag", "a wrong value", func(h *fakeHost) {
			h.crashed("kube-apiserver", `Error: invalid argument "x" for "--v" flag: strconv`)
		}, "invalid argument", false},
		{"bad-flag", "of etcd", func(h *fakeHost) { h.crashed("etcd", "flag provided but not defined: -nonsense") }, "etcd; flag provided; -nonsense", false},
		{"bad-flag", "of an earlier manifest", func(h *fakeHost) {
			h.container("kube-apiserver", "exited", at.Add(-time.Hour), "Error: unknown flag: --nonsense")
		}, "", false},
		{"bad-flag", "of one that was fixed", func(h *fakeHost) {
			h.Has.Containers = nil
			h.container("kube-apiserver", "exited", at.Add(-20*time.Second), "Error: unknown flag: --nonsense")
			h.container("kube-apiserver", "running", at.Add(-9*time.Second))
		}, "", false},
		{"port-taken", "by a stranger", func(h *fakeHost) {
			h.Has.Held[10259] = host.Process{PID: 9, Name: "nginx"}
			h.crashed("kube-scheduler", head+"failed to listen on 127.0.0.1:10259: listen tcp 127.0.0.1:10259: bind: address already in use")
		}, "kube-scheduler; port 10259; nginx (process 9)", false},
		{"port-taken", "by who knows", func(h *fakeHost) {
			h.crashed("kube-scheduler", head+"listen tcp 127.0.0.1:10259: bind: address already in use")
		}, "kube-scheduler; port 10259; `ss -ltnp 'sport = :10259'`", true},
		{"port-taken", "by the next of its own", func(h *fakeHost) {
			h.Has.Held[10259] = host.Process{PID: 9, Name: "kube-scheduler"}
			h.crashed("kube-scheduler", head+"listen tcp 127.0.0.1:10259: bind: address already in use")
			h.container("kube-scheduler", "running", at.Add(-time.Second))
		}, "", false},
		{"address-missing", "of etcd", func(h *fakeHost) {
			h.crashed("etcd", `{"level":"fatal","msg":"x","error":"listen tcp 192.0.2.77:2380: bind: cannot assign requested address"}`)
		}, "etcd; 192.0.2.77; 192.0.2.11; localAPIEndpoint.advertiseAddress; --apiserver-advertise-address", false},
		{"address-missing", "of one that is only asked", func(h *fakeHost) {
			h.crashed("kube-apiserver", head+"dial tcp [::1]:2379: connect: cannot assign requested address")
		}, "", false},
		{"address-missing", "it is there now", func(h *fakeHost) {
			h.crashed("etcd", `{"level":"fatal","msg":"x","error":"listen tcp 192.0.2.11:2380: bind: cannot assign requested address"}`)
		}, "", false},
		{"address-changed", "etcd still runs", func(h *fakeHost) {
			h.pod("etcd", "--data-dir=/var/lib/etcd", "--listen-peer-urls=https://192.0.2.77:2380")
		}, "etcd; 192.0.2.77; 192.0.2.11; `slipway reconfigure node --advertise-address", true},
		{"address-changed", "etcd can't start", func(h *fakeHost) {
			h.pod("etcd", "--data-dir=/var/lib/etcd", "--listen-peer-urls=https://192.0.2.77:2380")
			h.crashed("etcd", `{"level":"fatal","msg":"x","error":"listen tcp 192.0.2.77:2380: bind: cannot assign requested address"}`)
		}, "etcd; 192.0.2.77; 192.0.2.11; `slipway reconfigure node --advertise-address", false},
		{"address-changed", "the kubelet's", func(h *fakeHost) {
			h.insisted(`E1121 kubelet_node_status.go:1] "Unable to update node status" err="failed to validate nodeIP: node IP: \"192.0.2.77\" not found in the host's network interfaces"`)
		}, "kubelet; 192.0.2.77; 192.0.2.11; `slipway reconfigure node --node-ip", true},
		{"address-changed", "it's there", func(h *fakeHost) {
			h.pod("etcd", "--data-dir=/var/lib/etcd", "--listen-peer-urls=https://192.0.2.11:2380")
		}, "", false},
		{"static-pod", "a volume", func(h *fakeHost) {
			lost("kube-scheduler")(h)
			h.insisted(`E1121 nestedpendingoperations.go:348] Operation failed. Error: MountVolume.SetUp failed for volume "none" pod "kube-scheduler-cp-1": hostPath type check failed`)
		}, "kube-scheduler; /etc/kubernetes/manifests/kube-scheduler.yaml; extraVolumes", false},
		{"static-pod", "no Pod", func(h *fakeHost) {
			h.put(manifestDir+"/kube-scheduler.yaml", "spec: 7")
			h.insisted(`E1121 file.go:187] "Could not process manifest file" err="` + manifestDir + `/kube-scheduler.yaml: couldn't parse as pod" path="` + manifestDir + `/kube-scheduler.yaml"`)
		}, "/etc/kubernetes/manifests/kube-scheduler.yaml; as pod", false},
		{"static-pod", "a file that a control plane does not need", func(h *fakeHost) {
			h.put(manifestDir+"/README", "read me")
			h.insisted(`E1121 file.go:187] "Could not process manifest file" err="` + manifestDir + `/README: couldn't parse as pod" path="` + manifestDir + `/README"`)
		}, "", false},
		{"static-pod", "a file that was gone at once", func(h *fakeHost) {
			lost("kube-scheduler")(h)
			h.insisted(`E1121 file_linux.go:61] "Unable to process watch event" err="error while processing event (\"` + manifestDir + `/sedAbCdEf\"): no such file or directory"`)
		}, "", false},
		{"static-pod", "another Pod's volume of that name", func(h *fakeHost) {
			lost("etcd")(h)
			h.insisted(`E1121 Error: MountVolume.SetUp failed for volume "etcd-certs" pod "kube-apiserver-cp-1": hostPath type check failed: /pki/etcd-certs`)
		}, "", false},
		{"static-pod", "on a busy runtime", func(h *fakeHost) {
			lost("etcd")(h)
			h.insisted(`E1121 "Failed to create sandbox for pod" err="failed to reserve sandbox name \"etcd-cp-1\": name is reserved for \"1a2b\"" pod="kube-system/etcd-cp-1"`)
		}, "", false},
		{"container-crash", "of the user's own static Pod", func(h *fakeHost) {
			h.pod("kube-vip")
			h.crashed("kube-vip", crash)
			h.container("kube-vip", "exited", at.Add(-2*time.Second), crash)
		}, "2 times; of cheese", true},
		{"bad-flag", "of the user's own static Pod", func(h *fakeHost) {
			h.pod("haproxy")
			h.crashed("haproxy", "Error: unknown flag: --nonsense")
		}, "unknown flag", true},
		{"container-crash", "of the control plane, beside the user's own", func(h *fakeHost) {
			h.pod("haproxy")
			h.crashed("haproxy", "Error: unknown flag: --nonsense")
			h.crashed("kube-scheduler", crash)
			h.container("kube-scheduler", "exited", at.Add(-2*time.Second), crash)
		}, "kube-scheduler; 2 times", false},
		{"container-crash", "etcd's peers are slow", func(h *fakeHost) {
			const slow = `{"level":"fatal","msg":"discovery failed","error":"cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs"}`
			h.crashed("etcd", slow)
			h.container("etcd", "exited", at.Add(-2*time.Second), slow)
		}, "etcd; fatal: discovery failed; cluster info", true},
		{"container-crash", "twice the same", func(h *fakeHost) {
			h.crashed("kube-scheduler", crash)
			h.container("kube-scheduler", "exited", at.Add(-2*time.Second), crash)
		}, "2 times; of cheese", false},
		{"container-crash", "once", func(h *fakeHost) { h.crashed("kube-scheduler", crash) }, "", false},
		{"container-crash", "twice, differently", func(h *fakeHost) {
			h.crashed("kube-scheduler", crash)
			h.container("kube-scheduler", "exited", at.Add(-2*time.Second), head+`"command failed" err="something else"`)
		}, "2 times; something else", true},
		{"container-crash", "again and again, of which the kubelet keeps the last", func(h *fakeHost) {
			h.crashed("kube-scheduler", crash)
			h.Has.Containers[0].Restarts = 2
		}, "3 times; of cheese", false},
		{"container-crash", "twice, of which the kubelet keeps the last", func(h *fakeHost) {
			h.crashed("kube-scheduler", crash)
			h.Has.Containers[0].Restarts = 1
		}, "2 times; of cheese", true},
		{"container-crash", "killed by the kubelet", func(h *fakeHost) {
			h.crashed("kube-scheduler", crash)
			h.container("kube-scheduler", "exited", at.Add(-2*time.Second), crash)
			h.Has.Containers[0].ExitCode, h.Has.Containers[1].ExitCode = 137, 137
		}, "exit code 137", true},
		{"container-crash", "stopped before it handled signals", func(h *fakeHost) {
			h.crashed("etcd", `{"level":"warn","msg":"ignored streaming request; ID mismatch"}`)
			h.Has.Containers[0].Restarts, h.Has.Containers[0].ExitCode = 2, 2
		}, "exit code 2; ID mismatch", true},
		{"container-crash", "a panic", func(h *fakeHost) {
			h.crashed("etcd", `{"level":"panic","msg":"tocommit(3) is out of range"}`)
			h.Has.Containers[0].Restarts, h.Has.Containers[0].ExitCode = 2, 2
		}, "exit code 2; tocommit(3)", false},
		{"container-crash", "out of memory", func(h *fakeHost) {
			h.crashed("kube-scheduler", crash)
			h.container("kube-scheduler", "exited", at.Add(-2*time.Second), crash)
			h.Has.Containers[0].ExitCode, h.Has.Containers[1].ExitCode, h.Has.Containers[0].Reason = 137, 137, "OOMKilled"
		}, "exit code 137 (OOMKilled); more memory", false},
		{"container-crash", "waiting for others", func(h *fakeHost) {
			for range 2 {
				h.container("kube-scheduler", "exited", at.Add(-2*time.Second), head+`"command failed" err="dial tcp: connect: connection refused"`)
			}
		}, "connection refused", true},
		{"container-crash", "and runs again", func(h *fakeHost) {
			h.crashed("kube-scheduler", crash)
			h.container("kube-scheduler", "exited", at.Add(-9*time.Second), crash)
			h.container("kube-scheduler", "running", at.Add(-8*time.Second))
		}, "", false},
		{"not-running", "no container", lost("kube-scheduler"), "/etc/kubernetes/manifests/kube-scheduler.yaml; `journalctl -u kubelet`; `crictl pods`", true},
		{"manifest-missing", "moved away", func(h *fakeHost) { h.remove(manifestDir + "/kube-apiserver.yaml") },
			"kube-apiserver; " + manifestDir + "/kube-apiserver.yaml; not exist; `slipway init phase control-plane apiserver`", true},
		{"encryption-file", "lost", encrypted("/etc/kubernetes/encryption"), "kube-apiserver; /etc/kubernetes/encryption/encryption.yaml; `slipway encryption enable`; /etc/kubernetes/encryption/keyring", true},
		{"encryption-file", "an operator's", encrypted("/etc/kubernetes/own"), "kube-apiserver; /etc/kubernetes/own/encryption.yaml; --encryption-provider-config", true},
		{"encryption-file", "crashed once", func(h *fakeHost) {
			encrypted("/etc/kubernetes/own")(h)
			h.crashed("kube-apiserver", crash)
		}, "/etc/kubernetes/own/encryption.yaml", true},
		{"encryption-file", "crashed twice", func(h *fakeHost) {
			encrypted("/etc/kubernetes/own")(h)
			h.crashed("kube-apiserver", crash)
			h.container("kube-apiserver", "exited", at.Add(-2*time.Second), crash)
		}, "/etc/kubernetes/own/encryption.yaml", false},
		{"encryption-file", "it exists", func(h *fakeHost) {
			encrypted("/etc/kubernetes/encryption")(h)
			h.put("/etc/kubernetes/encryption/encryption.yaml", "")
		}, "", false},
		{"manifest-missing", "a worker", func(h *fakeHost) {
			for _, name := range components() {
				h.remove(manifestDir + "/" + name + ".yaml")
			}
		}, "", false},
		{"manifest-missing", "etcd on other hosts", func(h *fakeHost) { h.remove(manifestDir + "/etcd.yaml") }, "", false},
	}
}

func etcdRows() []row {
	const journal = "/etc/kubernetes/tmp/slipway-etcd-data.yaml"
	const rollback = "/etc/kubernetes/tmp/slipway-rollback.yaml"
	restoring := func(h *fakeHost) {
		h.put(journal, "command: etcd restore\nfrom: /a.db\naside: /var/lib/etcd/member.before-x\nmanifest: etcd\n")
	}
	return []row{
		{"etcd-interrupted", "a restore", func(h *fakeHost) {
			restoring(h)
			h.remove(manifestDir + "/etcd.yaml")
		}, "etcd; " + manifestDir + "/etcd.yaml; `slipway etcd restore /a.db`; " + journal, true},
		{"etcd-interrupted", "init --restore, before any manifest", func(h *fakeHost) {
			h.put(journal, "command: init --restore\nfrom: /a.db\n")
			for _, name := range components() {
				h.remove(manifestDir + "/" + name + ".yaml")
			}
		}, "etcd; " + manifestDir + "/etcd.yaml; `slipway init --restore /a.db`; " + journal, true},
		{"etcd-interrupted", "a restore, and an API server that names etcd by this host's address", func(h *fakeHost) {
			restoring(h)
			h.remove(manifestDir + "/etcd.yaml")
			h.pod("kube-apiserver", "--advertise-address=192.0.2.11", "--etcd-servers=https://192.0.2.11:2379")
		}, "etcd; " + manifestDir + "/etcd.yaml; `slipway etcd restore /a.db`; " + journal, true},
		{"etcd-interrupted", "a recovery that waits itself", func(h *fakeHost) {
			restoring(h)
			h.remove(manifestDir + "/etcd.yaml")
			h.pod("etcd-replay", "--data-dir=/var/lib/etcd/member.replay")
		}, "", false},
		{"etcd-interrupted", "a restore that has put it back", restoring, "", false},
		{"etcd-interrupted", "a rollback", func(h *fakeHost) {
			h.put(rollback, "aside: /var/lib/etcd/member.before-x\n")
			h.remove(manifestDir + "/etcd.yaml")
		}, "etcd; " + manifestDir + "/etcd.yaml; `slipway upgrade rollback --restore-etcd`", true},
		{"etcd-interrupted", "a rollback of a former node, on a worker", func(h *fakeHost) {
			h.put(rollback, "aside: /var/lib/etcd/member.before-x\nrestored: true\n")
			for _, name := range components() {
				h.remove(manifestDir + "/" + name + ".yaml")
			}
		}, "", false},
		{"etcd-interrupted", "a rollback of a former node, and etcd on other hosts", func(h *fakeHost) {
			h.put(rollback, "aside: /var/lib/etcd/member.before-x\nrestored: true\n")
			h.remove(manifestDir + "/etcd.yaml")
			h.pod("kube-apiserver", "--advertise-address=192.0.2.11", "--etcd-servers=https://192.0.2.5:2379")
		}, "", false},
		{"etcd-interrupted", "a rollback that has ended", func(h *fakeHost) {
			h.put(rollback, "aside: /var/lib/etcd/member.before-x\nfinished: 2026-11-21T08:00:00Z\n")
			h.remove(manifestDir + "/etcd.yaml")
		}, "", false},
		{"etcd-member", "removed", func(h *fakeHost) {
			h.crashed("etcd", `{"level":"fatal","msg":"the member has been permanently removed from the cluster"}`)
		}, "etcd; `slipway etcd member list`; /var/lib/etcd", false},
		{"etcd-member", "of another cluster", func(h *fakeHost) {
			h.crashed("etcd", `{"level":"fatal","msg":"discovery failed","error":"error validating peerURLs: member count is unequal"}`)
		}, "etcd; member count", false},
		{"etcd-member", "that another one is none", func(h *fakeHost) {
			h.container("etcd", "running", at.Add(-8*time.Second), `{"level":"warn","msg":"request cluster ID mismatch"}`)
		}, "", false},
		{"etcd-member", "of one that keeps running", func(h *fakeHost) {
			h.container("etcd", "running", at.Add(-8*time.Second), `{"level":"warn","msg":"request sent was ignored; cluster ID mismatch"}`)
			h.answers["/readyz"] = &host.ProbeError{Status: 503}
		}, "etcd; `slipway etcd status`; `slipway reset`; `slipway etcd member list`; /var/lib/etcd", false},
		{"etcd-data", "damaged", func(h *fakeHost) {
			h.crashed("etcd", `{"level":"panic","msg":"failed to open database","error":"invalid database"}`)
		}, "panic: failed; database: invalid database; `slipway etcd restore`", false},
		{"etcd-data", "not its own", func(h *fakeHost) {
			h.crashed("etcd", `{"level":"fatal","msg":"discovery failed","error":"cannot access data directory: mkdir /var/lib/etcd/member: permission denied"}`)
		}, "/var/lib/etcd; /var/lib/etcd/member: permission denied", false},
		{"etcd-data", "while it runs", func(h *fakeHost) {
			h.container("etcd", "running", at.Add(-8*time.Second), `{"level":"warn","msg":"snap: slow"}`)
		}, "", false},
		{"etcd-space", "an alarm", func(h *fakeHost) { h.bodies["/health"] = `{"health":"false","reason":"ALARM NOSPACE"}` }, "quota; ALARM NOSPACE", false},
		{"etcd-space", "disarmed", func(h *fakeHost) {
			h.bodies["/health"] = `{"health":"true","reason":""}`
			h.container("kube-apiserver", "running", at.Add(-8*time.Second), `E1121 "x" err="etcdserver: mvcc: database space exceeded"`)
		}, "", false},
		{"etcd-corrupt", "an alarm", members(func(m *etcd.Health) { m.Status.Alarms = []etcd.Alarm{{Member: 2, Kind: "CORRUPT"}} }), "etcd member cp-2; CORRUPT; `slipway etcd status --hashkv`", true},
		{"etcd-quota", "at 90 %", members(func(m *etcd.Health) { m.Status.Size = 90 << 20 }), "etcd member cp-2; 90; 100 MiB; `slipway etcd defrag`", true},
		{"etcd-quota", "at 70 %", members(func(m *etcd.Health) { m.Status.Size = 70 << 20 }), "", false},
		{"etcd-not-started", "a learner", members(func(m *etcd.Health) {
			*m = etcd.Health{Member: etcd.Member{ID: 0xb2, PeerURL: "https://192.0.2.12:2380", Learner: true}, Err: errors.New("not started")}
		}), "https://192.0.2.12:2380; `slipway etcd member remove b2`", true},
		{"etcd-not-started", "it is only down", members(func(m *etcd.Health) { m.Err = errors.New("connection refused") }), "", false},
		{"etcd-learner", "that works", members(func(m *etcd.Health) { m.Learner = true }), "etcd member cp-2", true},
		{"etcd-lag", "far behind", members(func(m *etcd.Health) { m.Status.Applied = 3 }), "etcd member cp-2; 5998; 3; 6001; `slipway diagnose`", true},
		{"etcd-lag", "a little behind", members(func(m *etcd.Health) { m.Status.Applied = 5900 }), "", false},
		{"etcd-unknown-peer", "of an old request", func(h *fakeHost) {
			members(func(*etcd.Health) {})(h)
			h.insistingEtcd(silentPeerLine("dead"))
		}, "etcd; dead; `slipway etcd status -o json`", true},
		{"etcd-unknown-peer", "it is a member", func(h *fakeHost) {
			members(func(*etcd.Health) {})(h)
			h.insistingEtcd(silentPeerLine("2"))
		}, "", false},
		{"etcd-unknown-peer", "nobody can be asked", func(h *fakeHost) { h.insistingEtcd(silentPeerLine("dead")) }, "", false},
		{"etcd-slow-disk", "three writes", func(h *fakeHost) { h.insistingEtcd(slowLine) }, "etcd; /var/lib/etcd", true},
		{"etcd-slow-disk", "one write", func(h *fakeHost) { h.container("etcd", "running", at.Add(-8*time.Second), slowLine) }, "", false},
		{"etcd-slow-disk", "long ago", func(h *fakeHost) {
			h.container("etcd", "running", at.Add(-2*time.Minute), slowLine, slowLine, slowLine)
		}, "", false},
		{"etcd-unreachable", "refused", externalEtcd(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), "kube-apiserver; https://192.0.2.21:2379; connection refused; kubeadm-config", false},
		{"etcd-unreachable", "silent", externalEtcd(context.DeadlineExceeded), "deadline exceeded", false},
		{"etcd-unreachable", "it refuses the client", externalEtcd(tls.AlertError(42)), "bad certificate", false},
		{"etcd-unreachable", "it has another CA", externalEtcd(&tls.CertificateVerificationError{Err: errors.New("unknown authority")}), "unknown authority", false},
		{"etcd-unreachable", "it speaks only gRPC", externalEtcd(tls.AlertError(120)), "", false},
		{"etcd-unreachable", "its name is unknown", externalEtcd(&net.OpError{Op: "dial", Err: &net.DNSError{}}), "", false},
		{"etcd-unreachable", "it answers", externalEtcd(nil), "", false},
		{"etcd-unreachable", "it answers badly", externalEtcd(&host.ProbeError{Status: 503}), "", false},
		{"etcd-unreachable", "it should be this node's", func(h *fakeHost) {
			externalEtcd(context.DeadlineExceeded)(h)
			h.pod("kube-apiserver", "--etcd-servers=https://[::1]:2379")
		}, "", false},
		{"etcd-unreachable", "it is this node's", func(h *fakeHost) {
			h.answers["/version"] = context.DeadlineExceeded
			h.crashed("kube-apiserver", "error creating storage factory: context deadline exceeded")
		}, "", false},
		{"etcd-unhealthy", "no leader", func(h *fakeHost) {
			h.answers["/readyz?verbose"] = &host.ProbeError{Status: 503, Body: "[+]data_corruption ok\n[-]non_learner failed\n"}
		}, "[-]non_learner failed", true},
		{"apiserver-unhealthy", "without etcd", func(h *fakeHost) {
			h.answers["/livez?verbose"] = &host.ProbeError{Status: 500, Body: "[+]ping ok\n[-]etcd failed: reason withheld\n"}
		}, "[-]etcd failed", true},
	}
}

// encrypted is a host whose API server reads keys from a directory.
func encrypted(dir string) func(h *fakeHost) {
	return func(h *fakeHost) {
		h.pod("kube-apiserver", "--encryption-provider-config="+dir+"/encryption.yaml")
		const path = manifestDir + "/kube-apiserver.yaml"
		h.put(path, strings.ReplaceAll(get(h, path), "/etc/etcd}", dir+"}"))
	}
}

const slowLine = `{"level":"warn","msg":"slow fdatasync","took":"1.2s","expected-duration":"1s"}`

func silentPeerLine(id string) string {
	return `{"level":"warn","msg":"prober detected unhealthy status","round-tripper-name":"ROUND_TRIPPER_SNAPSHOT","remote-peer-id":"` + id + `","rtt":"0s"}`
}

// insistingEtcd logs a line three times, two seconds apart.
func (h *fakeHost) insistingEtcd(line string) {
	h.container("etcd", "running", at.Add(-10*time.Second))
	var b strings.Builder
	for _, ago := range []time.Duration{6, 4, 2} {
		fmt.Fprintf(&b, "%s stderr F %s\n", at.Add(-ago*time.Second).Format(time.RFC3339Nano), line)
	}
	h.put(h.Has.Containers[0].LogPath, b.String())
}

// members is a host whose etcd has the members cp-1, which leads, and cp-2 with a change.
func members(change func(m *etcd.Health)) func(h *fakeHost) {
	return func(h *fakeHost) {
		for i := range uint64(2) {
			h.members = append(h.members, etcd.Health{
				Member:  etcd.Member{ID: i + 1, Name: fmt.Sprintf("cp-%d", i+1), PeerURL: fmt.Sprintf("https://192.0.2.1%d:2380", i+1)},
				Answers: true, Status: etcd.Status{Leader: 1, Committed: 6001, Applied: 6001, Size: 30 << 20, InUse: 20 << 20, Quota: 100 << 20},
			})
		}
		change(&h.members[1])
	}
}

// externalEtcd is a host whose API server uses an external etcd, and exits without it.
func externalEtcd(answer error) func(h *fakeHost) {
	return func(h *fakeHost) {
		h.remove(manifestDir + "/etcd.yaml")
		h.pod("kube-apiserver", "--etcd-servers=https://192.0.2.21:2379", "--etcd-cafile=/etc/etcd/ca.crt")
		h.crashed("kube-apiserver", "error creating storage factory: context deadline exceeded")
		h.answers["/version"] = answer
	}
}

func networkRows() []row {
	lookup := func(h *fakeHost) {
		h.container("kube-apiserver", "running", at.Add(-8*time.Second), `W1121 "dial tcp: lookup etcd.example.org on 192.0.2.1:53: no such host"`)
	}
	const complaint = `E1121 err="Get \"https://192.0.2.77:6443/api/v1/nodes/x\": dial tcp 192.0.2.77:6443: connect: connection refused"`
	worker := func(server string, answer error, lines ...string) func(h *fakeHost) {
		return func(h *fakeHost) {
			h.put("/etc/kubernetes/kubelet.conf", "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: '"+server+"'}}]\n"+
				"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\nusers: [{name: a, user: {}}]\n")
			h.answers["/readyz"] = answer
			for _, line := range lines {
				h.insisted(line)
			}
		}
	}
	refused := dial.RefusedError{Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	silent := dial.SilentError{Err: &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}}
	return []row{
		{"apiserver-unreachable", "nothing listens", worker("https://192.0.2.77:6443", refused, complaint), "192.0.2.77:6443; connection refused; load balancer", true},
		{"apiserver-unreachable", "nobody answers", worker("https://192.0.2.77:6443", silent, complaint), "192.0.2.77:6443; i/o timeout; `ip route get`", true},
		{"apiserver-unreachable", "it answers now", worker("https://192.0.2.77:6443", nil, complaint), "", false},
		{"apiserver-unreachable", "the kubelet doesn't complain", worker("https://192.0.2.77:6443", refused), "", false},
		{"apiserver-unreachable", "on this host", worker("https://192.0.2.11:6443", refused, strings.ReplaceAll(complaint, "192.0.2.77", "192.0.2.11")), "", false},
		{"name-unknown", "of etcd", func(h *fakeHost) {
			h.pod("kube-apiserver", "--etcd-servers=https://etcd.example.org:2379")
			h.names["etcd.example.org"] = true
			lookup(h)
		}, "etcd.example.org; /etc/hosts; `getent hosts etcd.example.org`", false},
		{"name-unknown", "of what a component can do without", func(h *fakeHost) { h.names["etcd.example.org"] = true; lookup(h) }, "etcd.example.org; /etc/hosts; `getent hosts etcd.example.org`", true},
		{"name-unknown", "it resolves now", lookup, "", false},
		{"name-unknown", "of a registry", func(h *fakeHost) {
			h.names["registry.k8s.io"] = true
			h.said(`E1121 "PullImage from image service failed" err="dial tcp: lookup registry.k8s.io: no such host" image="x"`)
		}, "", false},
		{"proxy", "of the kubelet", func(h *fakeHost) {
			h.insisted(`E1121 "x" err="proxyconnect tcp: dial tcp 192.0.2.9:3128: connect: connection refused"`)
		}, "HTTPS_PROXY; NO_PROXY; `systemctl show -p Environment kubelet`", false},
		{"proxy", "of a static Pod", func(h *fakeHost) {
			h.crashed("kube-scheduler", `E1121 err="proxyconnect tcp: dial tcp 192.0.2.9:3128"`)
		}, "kube-scheduler; HTTPS_PROXY; NO_PROXY", false},
		{"proxy", "of the runtime", func(h *fakeHost) {
			h.insisted(`E1121 "PullImage from image service failed" err="proxyconnect tcp: dial tcp 192.0.2.9:3128: i/o timeout"`)
		}, "", false},
		{"proxy", "once", func(h *fakeHost) { h.said(`E1121 "x" err="proxyconnect tcp: dial tcp 192.0.2.9:3128: i/o timeout"`) }, "", false},
		{"webhook", "that may fail", func(h *fakeHost) {
			for range 2 {
				h.container("kube-apiserver", "running", at.Add(-8*time.Second), `W1121 Failed calling webhook, failing open guard.example.org: failed calling webhook "guard.example.org": refused`)
			}
			h.insisted(`W1121 Failed calling webhook, failing open guard.example.org: failed calling webhook "guard.example.org": refused`)
		}, "", false},
		{"webhook", "refuses a mirror Pod", func(h *fakeHost) {
			h.insisted(`E1121 "Failed creating a mirror pod" err="admission webhook \"guard.example.org\" denied the request" pod="kube-system/etcd-cp-1"`)
		}, "guard.example.org", true},
		{"webhook", "does not answer", func(h *fakeHost) {
			h.insisted(`E1121 "x" err="cannot create certificate signing request: Internal error occurred: failed calling webhook \"guard.example.org\": failed to call webhook"`)
		}, "webhook guard.example.org; failurePolicy: Ignore", false},
		{"webhook", "once", func(h *fakeHost) { h.said(`E1121 "x" err="failed calling webhook \"guard.example.org\": refused"`) }, "", false},
		{"webhook", "some time ago", func(h *fakeHost) {
			h.container("kube-apiserver", "running", at.Add(-35*time.Second), `W1121 failed calling webhook "guard.example.org": refused`)
		}, "", false},
		{"webhook", "refuses", func(h *fakeHost) {
			h.insisted(`E1121 "Unable to register node with API server" err="admission webhook \"guard.example.org\" denied the request"`)
		}, "guard.example.org", false},
		{"clock", "etcd's peers", func(h *fakeHost) {
			h.container("etcd", "running", at.Add(-8*time.Second), `{"level":"warn","msg":"clock difference against peer 1 is too high"}`)
		}, "etcd; clock; `timedatectl`", true},
	}
}

func TestCauses(t *testing.T) {
	for _, r := range allRows() {
		t.Run(r.cause+" "+r.name, func(t *testing.T) {
			h := healthy(t)
			r.hurt(h)
			found, _ := look(t.Context(), h, h.target(true), &journal{}, nil)
			at := slices.IndexFunc(found, func(f symptom) bool { return f.Name == r.cause })
			switch {
			case r.want == "" && at >= 0:
				t.Errorf("found %s", found[at])
			case r.want == "":
			case at < 0:
				t.Errorf("found %v, want %q", found, r.want)
			case found[at].Remedy == "" || found[at].Message == "":
				t.Errorf("it lacks words: %+v", found[at])
			case (found[at].minDuration == never) != r.passes:
				t.Errorf("it lasts after %s: %s", found[at].minDuration, found[at])
			default:
				fact.In(t, found[at].String(), strings.Split(r.want, "; ")...)
			}
		})
	}
}

func allRows() []row {
	return slices.Concat(kubeletRows(), runtimeRows(), podRows(), etcdRows(), networkRows(), certificateRows(), refusedRows())
}

// TestServerMoved: where etcd is elsewhere, the API server's address counts, unless a router leads here. A host that's waiting to become
// a control plane may never have worked there.
func TestServerMoved(t *testing.T) {
	unreachable := &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}
	for name, tt := range map[string]struct {
		answer  error
		hurt    func(h *fakeHost)
		waiting bool
		want    string
	}{
		"nothing answers":         {answer: unreachable, want: "kube-apiserver; 192.0.2.77; 192.0.2.11; `slipway reconfigure node --advertise-address"},
		"another cluster answers": {answer: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}, want: "192.0.2.77; unknown authority"},
		"this API answers":        {},
		"it refuses":              {answer: &host.ProbeError{Status: 401}},
		"while it starts":         {answer: unreachable, waiting: true},
		"etcd is here":            {answer: unreachable, hurt: func(h *fakeHost) { h.pod("etcd", "--data-dir=/var/lib/etcd") }},
	} {
		t.Run(name, func(t *testing.T) {
			h := healthy(t)
			h.remove(manifestDir + "/etcd.yaml")
			h.pod("kube-apiserver", "--etcd-servers=https://192.0.2.21:2379", "--advertise-address=192.0.2.77")
			h.answers["/livez"] = tt.answer
			if tt.hurt != nil {
				tt.hurt(h)
			}
			found, _ := look(t.Context(), h, h.target(tt.waiting), &journal{}, nil)
			at := slices.IndexFunc(found, func(f symptom) bool { return f.Name == "address-changed" })
			switch {
			case at >= 0 != (tt.want != ""):
				t.Errorf("found %v", found)
			case at >= 0:
				fact.In(t, found[at].String(), strings.Split(tt.want, "; ")...)
			}
		})
	}
}

// TestEachCauseCanBeFound: each cause has a row that finds it. The golden file has each first row's finding.
func TestEachCauseCanBeFound(t *testing.T) {
	var text strings.Builder
	for _, c := range Causes() {
		rows := allRows()
		i := slices.IndexFunc(rows, func(r row) bool { return r.cause == c.Name && r.want != "" })
		if i < 0 {
			t.Errorf("no row shows %s", c.Name)
			continue
		}
		h := healthy(t)
		rows[i].hurt(h)
		for _, f := range run(t, h, true) {
			if f.Name == c.Name {
				fmt.Fprintln(&text, f)
			}
		}
	}
	golden.Check(t, "testdata/findings.txt", text.String())
}

func TestHealthyNodeHasNoCause(t *testing.T) {
	for _, waiting := range []bool{true, false} {
		if found := names(t, healthy(t), waiting); len(found) > 0 {
			t.Errorf("waiting %t: found %v", waiting, found)
		}
	}
}

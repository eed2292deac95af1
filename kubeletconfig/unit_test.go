// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files of the unit")

func TestUnitGolden(t *testing.T) {
	const program = "/usr/local/bin/kubelet"
	for name, got := range map[string][]byte{"kubelet.service": Unit(program), "20-slipway.conf": DropIn(program)} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(read(t, path), string(got)); diff != "" {
			t.Errorf("%s; -update writes it again (-want +got):\n%s", path, diff)
		}
	}
}

// TestDropInReadsWhatIsWritten: the drop-in names the files and the variable written by init and join.
func TestDropInReadsWhatIsWritten(t *testing.T) {
	n := load(t, read(t, golden, "default", "input.yaml"))
	flags, err := FlagsEnv(n)
	if err != nil {
		t.Fatal(err)
	}
	variable, _, _ := strings.Cut(string(flags), "=")
	text := string(DropIn("/usr/bin/kubelet"))
	for _, want := range []string{
		" $" + variable, "EnvironmentFile=-" + n.Paths.Kubelet + "/kubeadm-flags.env", "--config=" + n.Paths.Kubelet + "/config.yaml",
		" --kubeconfig=" + n.Paths.Kubeconfigs + "/kubelet.conf", "--bootstrap-kubeconfig=" + n.Paths.Kubeconfigs + "/bootstrap-kubelet.conf",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	// An empty ExecStart clears the unit's, because systemd would refuse two.
	if !strings.Contains(text, "\nExecStart=\nExecStart=/usr/bin/kubelet ") {
		t.Errorf("the unit's command is not replaced:\n%s", text)
	}
	if base := filepath.Base(DropInPath); base <= "10-kubeadm.conf" || filepath.Base(filepath.Dir(DropInPath)) != "kubelet.service.d" {
		t.Errorf("%s is not after a package's drop-in", DropInPath)
	}
}

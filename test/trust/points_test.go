// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package trust lists the promises that were once broken, each with the tests that failed then, and fails if one of those tests
// is renamed or removed.
package trust

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// points are promises once broken, each with the tests that failed then, as package.Test/row. Those of test/e2e run on
// real clusters.
var points = []struct {
	promise string
	tests   []string
}{
	{"host reset leaves a container runtime that no bundle brought", []string{
		"phases/machine.TestHostResetLeavesOtherRuntimes", "phases/machine.TestHostResetOfContainers", "phases/machine.TestHostResetAsksTheSocketOfThePreparation",
		"phases/machine.TestHostResetCannotSeeContainers", "phases/machine.TestPrepareKeepsImages", "test/e2e.TestUp",
	}},
	{"a restore of etcd asks members that joined after the snapshot", []string{
		"phases/rollback.TestRestoreAsksOthers", "phases/rollback.TestRestoreRefusesWithoutOthers", "internal/etcd.TestPeers", "test/e2e.TestHA/restore",
	}},
	{"a rollback takes back the last upgrade, not several", []string{
		"internal/upgrading.TestCompleted", "internal/upgrading.TestLastBackup/a run after an earlier release's", "internal/upgrading.TestLastBackupOfManyRuns", "phases/rollback.TestRunAfterCompletedUpgrade",
		"phases/rollback.TestRollbackKeepsEdited",
	}},
	{"a rollback refuses another cluster's backup", []string{"phases/rollback.TestRollbackRefusals", "internal/upgrading.TestLastBackupOfEtcdCluster"}},
	{"nothing stops a voter that the others need, and a restart of components holds the Lease", []string{
		"phases/renew.TestEtcdIsSpared", "phases/rollback.TestEtcdIsSpared", "phases/upgrade.TestEtcdIsSpared", "phases/rollback.TestRollbackPutsBack", "phases/renew.TestRenewInTurn", "phases/renew.TestRenewWithoutAPI", "phases/machine.TestPrepareInTurn",
		"phases/bootstrap.TestLocalEtcdIsSpared", "phases/bootstrap.TestCorrectedJoinSparesEtcd", "phases/bootstrap.TestCorrectedInitSparesEtcd",
		"test/e2e.TestHA/turns",
		"preflight.TestRunSortsByCheckAndSeverity/a guard of data by its name", "phases/node.TestTakeTurn/a renewal was abandoned", "phases/renew.TestSignerInTurn",
		"phases/rollback.TestRollbackKeepsLease", "test/e2e.TestHA/turns",
	}},
	{"an API server stops before its etcd and comes back with it", []string{
		"phases/renew.TestEtcdTakesAPIServerAlong", "phases/rollback.TestEtcdTakesAPIServerAlong", "phases/upgrade.TestEtcdTakesAPIServerAlong", "phases/node.TestKubeletStaysDown", "test/e2e.TestUpgrade/etcd-only",
	}},
	{"a snapshot and images fit together", []string{"phases/upgrade.TestHostFindings", "phases/rollback.TestSnapshotSpaceAgain"}},
	{"an upgrade keeps the flags that protect data and access", []string{
		"phases/edits.TestProtection", "phases/edits.TestProtectionFromPatches", "phases/upgrade.TestProtectionWithoutChecks", "test/e2e.TestUpgrade/encryption",
	}},
	{"an upgrade of a worker keeps edits of the kubelet's configuration", []string{
		"phases/edits.TestKubeletEdits", "phases/edits.TestEditedKubeletConfiguration", "phases/upgrade.TestNodeFindings", "test/e2e.TestUpgrade/kubelet-edit",
	}},
	{"host prepare and host reset leave programs, parameters and modes that others have set", []string{
		"phases/machine.TestPrepareKeepsHotfixes", "phases/machine.TestPrepareNamesCollisionsFirst", "phases/machine.TestPrepareLeavesDirectoryModes",
		"phases/machine.TestPrepareWithContainerdOfItsGuide", "phases/machine.TestHostResetParameters", "phases/machine.TestHostResetOfDisks",
	}},
	{"no worker decides where a credential goes", []string{
		"cmd/slipway.TestUpgradePlanWithAHostileWorker", "internal/cluster.TestRedirects", "internal/thisnode.TestEndpointsOfOthers",
		"phases/upgrade.TestServersOfWorkers", "phases/upgrade.TestUnmarkedControlPlane", "internal/thisnode.TestEndpointsWithoutTheLabel", "internal/ui.TestPrintable", "test/e2e.TestUpgrade/hostile-worker",
	}},
	{"leftover secrets are named or removed", []string{
		"phases/reset.TestResetNamesBackups", "phases/machine.TestPrepareHidesProxies", "internal/containerd.TestProxyEnv",
	}},
	{"an older bundle doesn't downgrade a node by itself", []string{
		"phases/machine.TestPrepareRefusesOlderPrograms", "phases/machine.TestPrepareRefusesOlderKubelets", "internal/bundle.TestOpenPinned",
	}},
	{"a host's facts stay on the host", []string{
		"kubeletconfig.TestFit", "phases/kubelet.TestHostFactsStayOnTheHost", "phases/upgrade.TestUpgradeUploadsNoHostFacts", "phases/kubelet.TestJoinCorrectsPaths",
		"phases/kubelet.TestJoinNamesSandboxFailure", "test/e2e.TestWorkers/host-facts",
	}},
	{"clients and servers accept each other before a renewal restarts anything", []string{
		"internal/pki.TestCheckTrust", "internal/pki.TestCheckTrustOfUnknownEtcd", "internal/pki.TestCheckTrustOfUnreadCAs", "internal/pki.TestTokensStay",
		"phases/renew.TestReplacedCA", "phases/renew.TestTwoCAs", "phases/renew.TestTwoCAsForOne", "test/e2e.TestNode/replaced-ca", "test/e2e.TestNode/two-cas",
	}},
	{"chains of certificates are accepted, a CA that can't sign for a node is refused at once", []string{
		"certs.TestChains", "certs.TestRestrictedCA", "phases/bootstrap.TestKeepsCAWithoutItsKey",
	}},
	{"contradictory settings are refused at once, or named within seconds", []string{
		"internal/config.TestContradictions", "internal/config.TestContradictionsOfExistingCluster", "internal/config.TestContradictionsElsewhere",
		"cmd/slipway.TestScripts/images", "preflight.TestChecks/AnonymousAccess", "preflight.TestChecks/ResolvConf", "internal/diagnose.TestCauses",
		"test/e2e.TestFaults/nodes have no rights", "test/e2e.TestFaults/nobody is anonymous", "test/e2e.TestHA/renamed", "test/e2e.TestHA/copied-manifest",
	}},
	{"advice leads to a configuration that works", []string{
		"internal/config.TestVersion", "internal/config.TestConfigs", "preflight.TestChecks/DNSLoop", "preflight.TestChecks/DirAvailable--var-lib-etcd",
	}},
	{"a corrected first attempt is taken", []string{
		"phases/bootstrap.TestCorrectedInit", "phases/bootstrap.TestCorrectedInitKeepsEdits", "phases/bootstrap.TestUnfinishedInit", "phases/bootstrap.TestCorrectedJoin",
		"phases/bootstrap.TestCorrectedJoinOfBrokenComponent", "phases/bootstrap.TestCompleteInitKeepsPatches", "phases/bootstrap.TestAloneAsksNobody", "test/e2e.TestHA/first-attempt",
	}},
	{"after a power cut, no image counts whose files are lost, and a join finishes", []string{
		"internal/host/linux/cri.TestFetchIsNoted", "internal/host/linux/cri.TestSettleImages", "phases/machine.TestPrepareKeepsImages/lost in a power cut",
		"phases/bootstrap.TestPreflightAfterPowerCut", "phases/bootstrap.TestLeftovers/lost in a power cut", "phases/kubelet.TestBootstrapCredentialsStayUntilTheKubeletReports",
	}},
	{"several container runtimes hinder only commands that need one", []string{"cmd/slipway.TestScripts/runtimes"}},
	{"scripts that call kubeadm find its lines", []string{
		"cmd/slipway/cli.TestPlaybooks", "cmd/slipway/env.TestLastLines", "cmd/slipway.TestScripts/flags", "test/e2e.TestNode/playbooks",
	}},
	{"the manifest of a Pod network is checked before objects are made", []string{
		"internal/config.TestManifestFaults", "internal/cluster.TestValidate", "internal/cluster.TestEnsureDropsNamespaces",
		"phases/bootstrap.TestNetworkIsRefused", "phases/bootstrap.TestNetworkThatStays", "test/e2e.TestNode/network-file",
	}},
	{"a control plane approves only its own kubelet's serving certificate, with nothing but the host's names and addresses", []string{
		"phases/kubelet.TestServingRequest", "phases/kubelet.TestServingKey",
	}},
	{"a changed add-on is on trial", []string{"phases/reconfigure.TestAddonsOnTrial", "phases/reconfigure.TestAddonsInPlan"}},
	{"a plan of a change says what restarts, and for how long the API is away", []string{"phases/reconfigure.TestPlan", "internal/plan.TestPlanEffects"}},
	{"the same command finishes after a kill on trial", []string{"phases/reconfigure.TestInterrupted", "cmd/slipway/reconfigure.TestFinishFirst"}},
	{"an edit on a control plane that lacks several changes stays", []string{"phases/reconfigure.TestNodeKeepsEdits", "internal/reconfiguring.TestPreviousNote"}},
	{"API servers do not begin to refuse kubelets", []string{"phases/reconfigure.TestKubeletCertificates"}},
	{"a change of the configuration that is killed at its end keeps no other control plane waiting", []string{
		"phases/reconfigure.TestCrash/way-back-confirmed", "phases/reconfigure.TestCrash/reconfigure-boot",
	}},
	{"a change of the configuration neither empties a cluster nor stops its writes", []string{
		"internal/reconfiguring.TestFixedArgs", "phases/reconfigure.TestQuota", "phases/reconfigure.TestLoweredQuota", "phases/reconfigure.TestRevertKeepsVersions",
	}},
}

// TestPoints checks that no promise's test is renamed or removed unnoticed.
func TestPoints(t *testing.T) {
	for _, point := range points {
		for _, name := range point.tests {
			if missing := missingIn(t, name); missing != "" {
				t.Errorf("%s: %s has no %s", point.promise, name, missing)
			}
		}
	}
}

// missingIn returns the part of a test's name, its function or its row, missing from the package's tests; empty if none is.
func missingIn(t *testing.T, name string) string {
	t.Helper()
	pkg, test, found := strings.Cut(name, ".")
	if !found {
		t.Fatalf("%q is no package.Test/row", name)
	}
	test, row, _ := strings.Cut(test, "/")
	text := testsOf(t, pkg)
	switch {
	case !strings.Contains(text, "\nfunc "+test+"(t *testing.T)"):
		return test
	case row != "" && !strings.Contains(text, row):
		return row
	}
	return ""
}

// testsOf returns the text of a package's tests, and the names of its scripts.
func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	dir := filepath.Join("..", "..", pkg)
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests (%v)", pkg, err)
	}
	scripts, err := filepath.Glob("../../testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(scripts, "\n")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text += "\n" + string(data)
	}
	return text
}

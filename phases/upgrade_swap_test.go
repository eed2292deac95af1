// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestPutBackNothing: a run that continues an interrupted one finds the new manifests. It does not put these back as if
// they were what ran before.
func TestPutBackNothing(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	manifest := []byte("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: kube-apiserver, image: 'a:v2'}]}\n")
	failed := errors.New("it does not come up")
	err := putBack(t.Context(), s.Env, []componentUpgrade{{name: manifests.APIServerName, before: manifest, wanted: manifest}}, failed)
	if !errors.Is(err, failed) || err.Error() != failed.Error() || len(s.host.jobs) > 0 || s.said.Len() > 0 {
		t.Errorf("error %v, did %q, said %q", err, s.host.jobs, s.said.String())
	}
}

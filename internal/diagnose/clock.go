// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// clockApart is the smallest difference that affects certificates and tokens.
const clockApart = 30 * time.Second

var clockSaid = lazyregexp.New(`clock difference against peer|high clock drift|not yet valid`)

// clock compares this host's clock with the API server's, and with the start of certificates' validity.
func clock(o *observation) []symptom {
	said := o.said(clockSaid)
	if o.t.Waiting && len(said) == 0 {
		return nil
	}
	f := symptom{minDuration: 2 * time.Second, Finding: fault.Finding{Subject: "this host's clock", Evidence: said}}
	f.Remedy = "set the clock, and keep it synchronized with chrony or systemd-timesyncd; `timedatectl` shows whether it is"
	for _, file := range o.certificateFaults() {
		if file.Name == notYetValid {
			f.Message, f.Evidence = file.Message, append(f.Evidence, file.Evidence...)
			if file.minDuration == never { // it becomes valid in a moment
				f.minDuration = never
			}
			return []symptom{f}
		}
	}
	if at, server, err := o.serverTime(); err == nil {
		apart := o.h.Now().Sub(at)
		if apart.Abs() >= clockApart {
			f.Message = "is " + apart.Abs().Round(time.Second).String() + direction(apart) + " that of the API server at " + server
			return []symptom{f}
		}
	}
	if skew := o.said(skewSaid); len(skew) > 0 {
		// etcd keeps working, and the answer may just have taken long.
		f.Message, f.Evidence, f.minDuration = "etcd reports a difference from another member's clock", skew, never
		return []symptom{f}
	}
	return nil
}

var skewSaid = lazyregexp.New(`clock difference against peer|high clock drift`)

func direction(apart time.Duration) string {
	if apart > 0 {
		return " ahead of"
	}
	return " behind"
}

func (o *observation) serverTime() (time.Time, string, error) {
	server := o.serverOf()
	if server == "" {
		return time.Time{}, "", errors.New("no kubeconfig")
	}
	at, err := o.h.Date(o.ctx, host.Probe{URL: server + "/version"})
	return at, server, err
}

// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// Offer is a version to which a cluster can be upgraded, described in kubeadm's words.
type Offer struct{ Version, Description string }

// Offers returns the next versions among the releases this program knows: the newest patch of the cluster's minor version, and of
// the next. It never offers a control plane an older version.
func (s *State) Offers() []Offer {
	oldest, newest := s.span()
	if oldest == nil {
		return nil
	}
	var offers []Offer
	for i, description := range []string{Series(oldest), "stable version"} {
		minor := oldest.OffsetMinor(i)
		patch := config.NewestPatch(int(minor.Minor()))
		if minor.Major() != 1 || patch == "" {
			continue
		}
		v := version.MustParseSemantic(patch)
		if oldest.LessThan(v) && !v.LessThan(newest) {
			offers = append(offers, Offer{patch, description})
		}
	}
	return offers
}

// Named returns the offer of a version the user names, or nil if everything runs with it or a newer one.
func (s *State) Named(target string) *Offer {
	oldest, _ := s.span()
	wanted, err := version.ParseSemantic(target)
	if oldest == nil || err != nil || !oldest.LessThan(wanted) && !s.anyKubeletOlder(wanted) {
		return nil
	}
	return &Offer{target, Series(oldest)}
}

// Series describes a version as kubeadm does.
func Series(v *version.Version) string {
	return fmt.Sprintf("version in the v%s series", releases.Minor(v))
}

// Oldest returns the version of the oldest API server; empty if unknown.
func (s *State) Oldest() string {
	oldest, _ := s.span()
	if oldest == nil {
		return ""
	}
	return "v" + oldest.String()
}

// span returns the oldest and newest version among the API servers and the cluster's configuration; nil if none is known.
func (s *State) span() (oldest, newest *version.Version) {
	known := []string{s.Configured}
	for _, n := range s.Nodes {
		if n.ControlPlane {
			known = append(known, n.APIServer)
		}
	}
	for _, text := range known {
		v, err := version.ParseSemantic(text)
		if err != nil {
			continue // Refusals reports it
		}
		if oldest == nil || v.LessThan(oldest) {
			oldest = v
		}
		if newest == nil || newest.LessThan(v) {
			newest = v
		}
	}
	return oldest, newest
}

func (s *State) anyKubeletOlder(target *version.Version) bool {
	for _, n := range s.Nodes {
		if v, err := version.ParseSemantic(n.Kubelet); err == nil && v.LessThan(target) {
			return true
		}
	}
	return false
}

// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
)

// object is a bootstrap token in the output. Only `token create --print-join-command` sets the last three fields, Slipway's own.
type object struct {
	metav1.TypeMeta `json:",inline"`

	Token          string       `json:"token"`
	Description    string       `json:"description,omitempty"`
	Expires        *metav1.Time `json:"expires,omitempty"`
	Usages         []string     `json:"usages,omitempty"`
	Groups         []string     `json:"groups,omitempty"`
	JoinCommand    string       `json:"joinCommand,omitempty"`
	CACertHashes   []string     `json:"caCertHashes,omitempty"`
	CertificateKey string       `json:"certificateKey,omitempty"`
}

func (t *object) DeepCopyObject() runtime.Object { return new(*t) }

// newObject is for an existing token, or one with a TTL that starts now.
func newObject(t config.Token, now time.Time) *object {
	o := &object{
		TypeMeta: metav1.TypeMeta{APIVersion: cli.OutputAPI, Kind: "BootstrapToken"},
		Token:    t.ID + "." + t.Secret.Reveal(), Description: t.Description, Usages: t.Usages, Groups: t.Groups,
	}
	expires := t.Expires
	if expires.IsZero() && t.TTL > 0 {
		expires = now.Add(t.TTL)
	}
	if !expires.IsZero() {
		o.Expires = new(metav1.NewTime(expires.UTC().Truncate(time.Second)))
	}
	return o
}

// table prints nothing, not even headings, if there are no tokens.
func table(w io.Writer, list []*object, now time.Time) error {
	if len(list) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS")
	for _, o := range list {
		ttl, expires := "<forever>", "<never>"
		if o.Expires != nil {
			ttl, expires = duration.ShortHumanDuration(o.Expires.Sub(now)), o.Expires.Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", o.Token, ttl, expires, orNone(o.Usages), cmp.Or(o.Description, "<none>"), orNone(o.Groups))
	}
	return t.Flush()
}

func orNone(list []string) string { return cmp.Or(strings.Join(list, ","), "<none>") }

// printCreated prints each token's join command, or else the token, for scripts.
func printCreated(w io.Writer, made []*object) error {
	for _, m := range made {
		if _, err := fmt.Fprintln(w, cmp.Or(m.JoinCommand, m.Token)); err != nil {
			return err
		}
	}
	return nil
}

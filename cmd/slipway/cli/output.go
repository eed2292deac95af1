// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Offer sets a flag's values for shell completion.
func Offer(fs *pflag.FlagSet, flag string, values ...string) {
	_ = fs.SetAnnotation(flag, config.ValuesAnnotation, values) // fails only for a flag that doesn't exist
}

// ExitError is a result scripts read from the exit code.
type ExitError struct {
	Code    int
	Message string
}

func (e ExitError) Error() string { return e.Message }

// CodeOf is the exit code for err: 1, as scripts expect, except for an ExitError; 0 for nil.
func CodeOf(err error) int {
	var e ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return 1
}

// OutputAPI is the version of kubeadm's output objects.
const OutputAPI = "output.kubeadm.k8s.io/v1alpha3"

// forms are the values of -o; templateForms need a template, or its file, after =.
func (o *OutputOptions) forms() []string {
	forms := []string{o.forPeople(), "json", "yaml", "kyaml"}
	for _, form := range templateForms() {
		forms = append(forms, form+"=")
	}
	return forms
}

func templateForms() []string {
	return []string{"go-template", "go-template-file", "template", "templatefile", "jsonpath", "jsonpath-as-json", "jsonpath-file"}
}

func (o *OutputOptions) forPeople() string { return cmp.Or(o.People, "text") }

func (o *OutputOptions) listOfForms() string {
	return strings.ReplaceAll(strings.Join(o.forms(), ", "), "=", "=…")
}

type OutputOptions struct {
	People        string // the form for people; by default text
	Form          string
	allowMissing  bool
	managedFields bool
}

func (o *OutputOptions) Bind(fs *pflag.FlagSet) {
	fs.StringVarP(&o.Form, "output", "o", o.forPeople(), "output `format`: "+o.listOfForms())
	Offer(fs, "output", o.forms()...)
	fs.BoolVar(&o.allowMissing, "allow-missing-template-keys", true, "print nothing for fields in the template that the object does not have, instead of failing")
	fs.BoolVar(&o.managedFields, "show-managed-fields", false, "include managedFields in JSON and YAML output")
}

// Printer returns the printer for the chosen form; it's nil for people.
func (o *OutputOptions) Printer() (printers.ResourcePrinter, error) {
	p, err := o.choose()
	if p == nil || err != nil || o.managedFields {
		return p, err
	}
	return &printers.OmitManagedFieldsPrinter{Delegate: p}, nil
}

func (o *OutputOptions) choose() (printers.ResourcePrinter, error) {
	switch o.Form {
	case o.forPeople():
		return nil, nil
	case "json":
		return &printers.JSONPrinter{}, nil
	case "yaml":
		return &printers.YAMLPrinter{}, nil
	case "kyaml":
		return &printers.KYAMLPrinter{}, nil
	}
	form, template, _ := strings.Cut(o.Form, "=")
	if template == "" && slices.Contains(templateForms(), form) {
		return nil, errors.Errorf("--output %s: a template is needed, such as %s=…", form, form)
	}
	switch form {
	case "go-template-file", "templatefile", "jsonpath-file":
		data, err := os.ReadFile(template)
		if err != nil {
			return nil, errors.Wrap(err, "--output")
		}
		template = string(data)
	}
	switch form {
	case "go-template", "template", "go-template-file", "templatefile":
		return o.goTemplate(template)
	case "jsonpath", "jsonpath-file", "jsonpath-as-json":
		return o.jsonPath(template, form == "jsonpath-as-json")
	}
	return nil, errors.Errorf("unknown --output %q: expected one of %s", o.Form, o.listOfForms())
}

func (o *OutputOptions) goTemplate(text string) (printers.ResourcePrinter, error) {
	p, err := printers.NewGoTemplatePrinter([]byte(text))
	if err != nil {
		return nil, errors.Wrap(err, "--output")
	}
	p.AllowMissingKeys(o.allowMissing)
	return p, nil
}

func (o *OutputOptions) jsonPath(text string, asJSON bool) (printers.ResourcePrinter, error) {
	p, err := printers.NewJSONPathPrinter(text)
	if err != nil {
		return nil, errors.Wrap(err, "--output")
	}
	p.AllowMissingKeys(o.allowMissing)
	p.EnableJSONOutput(asJSON)
	return p, nil
}

// Print writes obj in the chosen form; text prints it for people.
func (o *OutputOptions) Print(g *Globals, obj runtime.Object, text func(io.Writer) error) error {
	return PrintList(o, g, []runtime.Object{obj}, text)
}

// PrintList writes objects one after another in the chosen form; text prints all of them for people.
func PrintList[T runtime.Object](o *OutputOptions, g *Globals, objs []T, text func(io.Writer) error) error {
	p, err := o.Printer()
	if err != nil {
		return err
	}
	// A failing template has already printed half of the output and an error message of its own.
	var b bytes.Buffer
	if p == nil {
		if err := text(&b); err != nil {
			return err
		}
		return g.Result(b.String())
	}
	for _, obj := range objs {
		if err := p.PrintObj(obj, &b); err != nil {
			return errors.Wrap(err, "--output")
		}
	}
	return g.Result(b.String())
}

func (g *Globals) Result(text string) error {
	_, err := io.WriteString(g.Streams.Out, Shown(g.Program, text))
	return err
}

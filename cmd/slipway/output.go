// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
)

// outputForms are the machine-readable forms of -o, besides text.
const outputForms = "text, json, yaml, kyaml, go-template=…, go-template-file=…, jsonpath=…, jsonpath-as-json=…, jsonpath-file=…"

// outputOptions are the flags of commands that print an object.
type outputOptions struct {
	form          string
	allowMissing  bool
	managedFields bool
}

func (o *outputOptions) bind(fs *pflag.FlagSet) {
	fs.StringVarP(&o.form, "output", "o", "text", "`form` of the output: "+outputForms)
	fs.BoolVar(&o.allowMissing, "allow-missing-template-keys", true, "print nothing for a field that a template names and the object lacks, instead of failing")
	fs.BoolVar(&o.managedFields, "show-managed-fields", false, "keep the managedFields when printing an object as JSON or YAML")
}

// printer returns what prints in the chosen form; text is what prints the form
// for people.
func (o *outputOptions) printer(text printers.ResourcePrinter) (printers.ResourcePrinter, error) {
	p, err := o.choose(text)
	if err != nil || o.managedFields {
		return p, err
	}
	return &printers.OmitManagedFieldsPrinter{Delegate: p}, nil
}

func (o *outputOptions) choose(text printers.ResourcePrinter) (printers.ResourcePrinter, error) {
	form, argument, _ := strings.Cut(o.form, "=")
	if fromFile, ok := strings.CutSuffix(form, "-file"); ok {
		data, err := os.ReadFile(argument)
		if err != nil {
			return nil, errors.Wrap(err, "--output")
		}
		form, argument = fromFile, string(data)
	}
	switch form {
	case "text":
		return text, nil
	case "json":
		return &printers.JSONPrinter{}, nil
	case "yaml":
		return &printers.YAMLPrinter{}, nil
	case "kyaml":
		return &printers.KYAMLPrinter{}, nil
	case "go-template":
		return o.goTemplate(argument)
	case "jsonpath", "jsonpath-as-json":
		return o.jsonPath(argument, form == "jsonpath-as-json")
	}
	return nil, errors.Errorf("--output %q: the forms are %s", o.form, outputForms)
}

func (o *outputOptions) goTemplate(text string) (printers.ResourcePrinter, error) {
	p, err := printers.NewGoTemplatePrinter([]byte(text))
	if err != nil {
		return nil, errors.Wrap(err, "--output")
	}
	p.AllowMissingKeys(o.allowMissing)
	return p, nil
}

func (o *outputOptions) jsonPath(text string, asJSON bool) (printers.ResourcePrinter, error) {
	p, err := printers.NewJSONPathPrinter(text)
	if err != nil {
		return nil, errors.Wrap(err, "--output")
	}
	p.AllowMissingKeys(o.allowMissing)
	p.EnableJSONOutput(asJSON)
	return p, nil
}

// print writes obj in the chosen form.
func (o *outputOptions) print(g *globals, obj runtime.Object, text printers.ResourcePrinterFunc) error {
	p, err := o.printer(text)
	if err != nil {
		return err
	}
	return p.PrintObj(obj, g.streams.out)
}

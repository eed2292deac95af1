// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/pflag"
)

type flagRow struct {
	Name string

	commands   []string
	fields     []flagField
	values     []string
	withConfig bool
	// bind defines the flag, with its value in flags' field, if there's one.
	bind func(fs *pflag.FlagSet, flags any)
}

// flagField is a field of a document. set copies the flag's value there from a command's flags.
type flagField struct {
	kind, path string
	set        func(d *documents, flags any)
}

// typedRow builds a flagRow whose value is a T; on completes it.
type typedRow[T any] struct {
	flag  flagRow
	short string
}

// define is a FlagSet's method that defines a flag of type T, such as StringVarP.
type define[T any] func(fs *pflag.FlagSet, to *T, name, short string, preset T, usage string)

func newRow[T any](def define[T], name string, preset T, usage string) *typedRow[T] {
	r := &typedRow[T]{flag: flagRow{Name: name}}
	r.flag.bind = func(fs *pflag.FlagSet, flags any) {
		to, ok := fieldOf(flags, name).(*T)
		if !ok {
			to = new(T)
		}
		def(fs, to, name, r.short, preset, usage)
	}
	return r
}

func text(name, preset, usage string) *typedRow[string] {
	return newRow((*pflag.FlagSet).StringVarP, name, preset, usage)
}

func number(name string, preset int32, usage string) *typedRow[int32] {
	return newRow((*pflag.FlagSet).Int32VarP, name, preset, usage)
}

func list(name string, preset []string, usage string) *typedRow[[]string] {
	return newRow((*pflag.FlagSet).StringSliceVarP, name, preset, usage)
}

func duration(name string, preset time.Duration, usage string) *typedRow[time.Duration] {
	return newRow((*pflag.FlagSet).DurationVarP, name, preset, usage)
}

// toggle is false unless given.
func toggle(name, usage string) *typedRow[bool] {
	return newRow((*pflag.FlagSet).BoolVarP, name, false, usage)
}

// switchOff is true unless given.
func switchOff(name, usage string) *typedRow[bool] {
	return newRow((*pflag.FlagSet).BoolVarP, name, true, usage)
}

// sets names a field the flag sets. A flag that sets the same thing for several commands has a field in each one's document.
func (r *typedRow[T]) sets(kind, path string, set func(d *documents, value T)) *typedRow[T] {
	name := r.flag.Name
	r.flag.fields = append(r.flag.fields, flagField{kind, path, func(d *documents, flags any) { set(d, *fieldOf(flags, name).(*T)) }})
	return r
}

// allowWithConfig allows a field's flag beside --config: the flag takes precedence over the file.
func (r *typedRow[T]) allowWithConfig() *typedRow[T] {
	r.flag.withConfig = true
	return r
}

func (r *typedRow[T]) shorthand(letter string) *typedRow[T] {
	r.short = letter
	return r
}

// offers lists values for shell completion.
func (r *typedRow[T]) offers(values ...string) *typedRow[T] {
	r.flag.values = values
	return r
}

// forCommands completes the row with the commands that take the flag. "init phase" stands for phases of init with flags init
// doesn't take.
func (r *typedRow[T]) forCommands(commands ...string) flagRow {
	r.flag.commands = commands
	return r.flag
}

func (f *flagRow) refusedWithConfig() bool { return len(f.fields) > 0 && !f.withConfig }

func flagOf(command, name string) *flagRow {
	rows := flagTable()
	for i := range rows {
		if rows[i].Name == name && slices.Contains(rows[i].commands, command) {
			return &rows[i]
		}
	}
	return nil
}

// ValuesAnnotation marks a bound flag with its values for shell completion.
const ValuesAnnotation = "slipway_values"

// Bind adds a command's flags from the table; the command is named like "init" or "token create". Their values go to flags, such
// as *InitFlags; nil if nothing reads them.
func Bind(fs *pflag.FlagSet, command string, flags any) {
	for _, part := range partsOf(command) {
		for _, row := range flagTable() {
			if slices.Contains(row.commands, part) && fs.Lookup(row.Name) == nil {
				row.bindTo(fs, flags)
			}
		}
	}
}

// BindPhase adds the named flags of a phase of init, join or reset. It leaves out names missing from the table: a test finds
// them, and a user's run mustn't end over them.
func BindPhase(fs *pflag.FlagSet, workflow string, names []string, flags any) {
	for _, name := range names {
		if row := cmp.Or(flagOf(workflow, name), flagOf(workflow+" phase", name)); row != nil {
			row.bindTo(fs, flags)
		}
	}
}

func (f *flagRow) bindTo(fs *pflag.FlagSet, flags any) {
	f.bind(fs, flags)
	if f.values != nil {
		_ = fs.SetAnnotation(f.Name, ValuesAnnotation, f.values) // fails only for a flag that doesn't exist
	}
}

// apply writes a command's given flags into the documents of the given kinds, and records which flag set each field. withFile
// means that --config is given, too.
func (d *documents) apply(given Given, flags any, command string, withFile bool, kinds ...string) {
	if withFile {
		d.refuseMixing(given, command)
	}
	for _, row := range flagTable() {
		if !given.Has(row.Name) || !slices.Contains(row.commands, command) || withFile && row.refusedWithConfig() {
			continue
		}
		for _, field := range row.fields {
			if slices.Contains(kinds, field.kind) {
				d.setByFlag(field.kind, row.Name, field.path)
				field.set(d, flags)
			}
		}
	}
}

// refuseMixing refuses flags that could contradict the file, as kubeadm does.
func (d *documents) refuseMixing(given Given, command string) {
	for _, name := range given {
		if row := flagOf(command, name); row != nil && row.refusedWithConfig() {
			d.fault(Fault{Field: "--" + name, Message: "cannot be given together with --config; set the value in the file"})
		}
	}
}

func (d *documents) setByFlag(kind, flag, path string) {
	o := d.origins[kind]
	if o == nil {
		o = &origin{}
		d.origins[kind] = o
	}
	if o.flags == nil {
		o.flags = make(map[string]string)
	}
	o.flags[path] = flag
}

func (d *documents) setOnCommandLine(kind, path string) bool {
	o := d.origins[kind]
	return o != nil && o.flags[path] != ""
}
